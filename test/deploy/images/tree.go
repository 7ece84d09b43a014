package main

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"path"
	"time"
)

// tree is the archive of a layer. The first error stays, and close returns it.
type tree struct {
	dist    fs.FS
	made    time.Time
	archive bytes.Buffer
	out     *tar.Writer
	folders map[string]bool
	err     error
}

// newTree returns an empty layer, whose files come from dist.
func newTree(dist fs.FS, made time.Time) *tree {
	t := &tree{dist: dist, made: made, folders: map[string]bool{".": true}}
	t.out = tar.NewWriter(&t.archive)
	return t
}

// close returns the archive.
func (t *tree) close() ([]byte, error) {
	if t.err == nil {
		t.err = t.out.Close()
	}
	return t.archive.Bytes(), t.err
}

// add writes an entry, after the folders above it. All entries are root's.
func (t *tree) add(header tar.Header, content []byte) {
	if above := path.Dir(path.Clean(header.Name)); !t.folders[above] {
		t.folder(above, 0o755)
	}
	if t.err != nil {
		return
	}
	header.ModTime, header.Size, header.Format = t.made, int64(len(content)), tar.FormatUSTAR
	if t.err = t.out.WriteHeader(&header); t.err == nil {
		_, t.err = t.out.Write(content)
	}
}

func (t *tree) folder(name string, mode int64) {
	t.folders[name] = true
	t.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (t *tree) text(name, text string) {
	t.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, []byte(text))
}

// file adds a file of dist.
func (t *tree) file(from, name string, mode int64) {
	content, err := fs.ReadFile(t.dist, from)
	if err != nil && t.err == nil {
		t.err = err
	}
	t.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content)
}

func (t *tree) link(target, name string) {
	t.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}
