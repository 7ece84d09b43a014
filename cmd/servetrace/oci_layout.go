package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// ociLayout is an OCI image layout: a folder with images or other content, or a tar
// archive of such a folder:
// https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
type ociLayout struct{ path string }

type ociPlatform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

type ociDescriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *ociPlatform      `json:"platform"`
	Annotations map[string]string `json:"annotations"`
}

// The keys of the annotations that have the tag of an image and the name of a layer's file.
const (
	ociRef   = "org.opencontainers.image.ref.name"
	ociTitle = "org.opencontainers.image.title"
)

// plugin returns the name and the bytes of the plugin with this name. An empty name means
// the only layer with a title. tag and digest, if not empty, choose the manifest or an index
// of manifests in the layout.
func (l ociLayout) plugin(tag, digest, name string) (string, []byte, error) {
	text, err := l.file("index.json")
	if err != nil {
		return "", nil, usagef("SOURCE oci:%s: %w; want an OCI layout, as a folder or a tar archive", l.path, err)
	}
	layers, err := l.layers(text, func(d ociDescriptor) bool {
		ref := d.Annotations[ociRef]
		return (tag == "" || ref == tag || strings.HasSuffix(ref, ":"+tag)) && (digest == "" || d.Digest == "sha256:"+digest)
	})
	if err != nil {
		return "", nil, fmt.Errorf("oci:%s: %w", l.path, err)
	}
	var titles []string
	for _, layer := range layers {
		if title := layer.Annotations[ociTitle]; title != "" {
			titles = append(titles, path.Base(title))
		}
	}
	if name == "" && len(titles) != 1 {
		return "", nil, usagef("SOURCE oci:%s: which file is the plugin? Name it with --name", l.path)
	}
	if name == "" {
		// The image sets the title, which must not be a path such as "..".
		if name = titles[0]; !entryName.MatchString(name) {
			return "", nil, usagef("SOURCE oci:%s: the title %q is no name of a plugin; name the plugin with --name", l.path, name)
		}
	}
	for _, layer := range slices.Backward(layers) { // a later layer replaces the files of the layers before it
		data, err := l.blob(layer)
		if err != nil {
			return "", nil, fmt.Errorf("oci:%s: %w", l.path, err)
		}
		title := layer.Annotations[ociTitle]
		if title != "" && path.Base(title) != name && !strings.Contains(layer.MediaType, "tar") {
			continue
		}
		data, err = fromArchive(data, name)
		if !errors.Is(err, errNotInArchive) {
			return name, data, err
		}
	}
	return "", nil, fmt.Errorf("oci:%s: no layer has a file %q; --name gives another name", l.path, name)
}

// layers returns the layers of a manifest. Exactly one entry of the index must fit and be
// for this platform, or name no platform. The entry may be an index again.
func (l ociLayout) layers(index []byte, fits func(ociDescriptor) bool) ([]ociDescriptor, error) {
	var list struct {
		Manifests []ociDescriptor `json:"manifests"`
	}
	if err := json.Unmarshal(index, &list); err != nil {
		return nil, fmt.Errorf("the index: %w", err)
	}
	var found []ociDescriptor
	for _, d := range list.Manifests {
		if fits(d) && (d.Platform == nil || *d.Platform == thisPlatform) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d manifests fit, of %d; want one for %s/%s: name it by its tag, or by @sha256: and its digest",
			len(found), len(list.Manifests), thisPlatform.OS, thisPlatform.Architecture)
	}
	text, err := l.blob(found[0])
	if err != nil {
		return nil, err
	}
	if strings.Contains(found[0].MediaType, "index") || strings.Contains(found[0].MediaType, "manifest.list") {
		return l.layers(text, func(ociDescriptor) bool { return true })
	}
	var manifest struct {
		Layers []ociDescriptor `json:"layers"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, fmt.Errorf("the manifest %s: %w", found[0].Digest, err)
	}
	return manifest.Layers, nil
}

// blob returns the content that a descriptor describes, and verifies its digest.
func (l ociLayout) blob(d ociDescriptor) ([]byte, error) {
	digest, ok := strings.CutPrefix(d.Digest, "sha256:")
	if !ok || !pinned.MatchString("@"+d.Digest) {
		return nil, fmt.Errorf("the digest %.80q: want sha256: and 64 hexadecimal digits", d.Digest)
	}
	if d.Size > mostInstalled {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", d.Digest, d.Size, mostInstalled)
	}
	file := "blobs/sha256/" + digest
	data, err := l.file(file)
	if err != nil {
		return nil, err
	}
	return data, verify(file, data, digest)
}

// file returns the content of a file in the layout. name has slashes.
func (l ociLayout) file(name string) ([]byte, error) {
	if info, err := os.Stat(l.path); err != nil || info.IsDir() {
		return readAll(filepath.Join(l.path, filepath.FromSlash(name)), nil, mostInstalled)
	}
	f, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	for archive := tar.NewReader(f); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the archive has no file %s", name)
		}
		if err != nil {
			return nil, fmt.Errorf("tar: %w", err)
		}
		if path.Clean(header.Name) == name && header.Size <= mostInstalled {
			return io.ReadAll(archive)
		}
	}
}

var errNotInArchive = errors.New("the archive does not have the file")

// fromArchive returns the executable with this name in a tar archive. The archive may be
// compressed with gzip or zstd. If data is no archive, data is the file itself, which may be
// compressed, too. If the name is a link, its target must be a file in the same archive.
func fromArchive(data []byte, name string) ([]byte, error) {
	return extract(data, name, mostInstalled, false)
}

func extract(data []byte, name string, most int64, linked bool) ([]byte, error) {
	var r io.Reader = bytes.NewReader(data)
	switch {
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		unzipped, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		r = unzipped
	case bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		unpacked, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostInstalled))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		defer unpacked.Close()
		r = unpacked
	}
	begin := bufio.NewReaderSize(io.LimitReader(r, most+1), 512)
	head, _ := begin.Peek(262) // an error means that the file is shorter, so it is no archive
	if len(head) < 262 || !bytes.Equal(head[257:262], []byte("ustar")) {
		return readBounded(begin, most)
	}
	for archive := tar.NewReader(begin); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w %q; --name gives another name", errNotInArchive, name)
		}
		if err != nil {
			return nil, fmt.Errorf("tar: %w", err)
		}
		link := header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink
		if link && !linked && path.Base(header.Name) == name {
			return extract(data, path.Base(header.Linkname), most, true) // for example, a program with several names has a link for each
		}
		if header.Typeflag == tar.TypeReg && path.Base(header.Name) == name && header.Mode&0o111 != 0 {
			return io.ReadAll(archive)
		}
	}
}
