package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
)

const pluginScript = "#!/bin/sh\nexit 0\n"

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// tarred returns a tar archive with gzip of these executables.
func tarred(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	tarTo(t, gzip.NewWriter(&out), files)
	return out.Bytes()
}

// tarTo writes a tar archive of these executables.
func tarTo(t *testing.T, zipped io.WriteCloser, files map[string]string) {
	t.Helper()
	archive := tar.NewWriter(zipped)
	for name, text := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
}

// layout returns the folder of an OCI layout without an index, and a function that adds
// a blob.
func layout(t *testing.T) (dir string, add func([]byte) ociDescriptor) {
	t.Helper()
	dir = t.TempDir()
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		t.Fatal(err)
	}
	add = func(data []byte) ociDescriptor {
		d := ociDescriptor{Digest: digestOf(data), Size: int64(len(data))}
		if err := os.WriteFile(filepath.Join(blobs, strings.TrimPrefix(d.Digest, "sha256:")), data, 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
	return dir, add
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// image writes a layout with an index of two platforms, tagged v1. One layer has the
// plugin names, with gzip, the next replaces it, with zstd.
func image(t *testing.T) (dir string, index ociDescriptor) {
	t.Helper()
	dir, add := layout(t)
	first := add(tarred(t, map[string]string{"usr/lib/names": "#!/bin/sh\nexit 1\n", "etc/other": "x"}))
	var zipped bytes.Buffer
	w, err := zstd.NewWriter(&zipped)
	if err != nil {
		t.Fatal(err)
	}
	tarTo(t, w, map[string]string{"usr/lib/names": pluginScript})
	second := add(zipped.Bytes())
	first.MediaType, second.MediaType = "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar+zstd"
	here := add(asJSON(t, map[string]any{"layers": []ociDescriptor{first, second}}))
	there := add(asJSON(t, map[string]any{"layers": []ociDescriptor{first}}))
	here.Platform, there.Platform = &thisPlatform, &ociPlatform{OS: "plan9", Architecture: "mips"}
	index = add(asJSON(t, map[string]any{"manifests": []ociDescriptor{there, here}}))
	index.MediaType, index.Annotations = "application/vnd.oci.image.index.v1+json", map[string]string{ociRef: "v1"}
	if err := os.WriteFile(filepath.Join(dir, "index.json"), asJSON(t, map[string]any{"manifests": []ociDescriptor{index}}), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, index
}

// TestPluginInstall installs the same plugin from each kind of source. The printed entry
// has the digest of the file.
func TestPluginInstall(t *testing.T) {
	work := t.TempDir()
	file, archive := filepath.Join(work, "names"), tarred(t, map[string]string{"plugins/names": pluginScript})
	if err := os.WriteFile(file, []byte(pluginScript), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".tgz", archive, 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }))
	defer server.Close()
	image, index := image(t)
	artifact, add := layout(t)
	layer := add([]byte(pluginScript))
	layer.Annotations = map[string]string{ociTitle: "names"}
	manifest := add(asJSON(t, map[string]any{"layers": []ociDescriptor{layer}}))
	if err := os.WriteFile(filepath.Join(artifact, "index.json"), asJSON(t, map[string]any{"manifests": []ociDescriptor{manifest}}), 0o600); err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(t.TempDir(), "image.tar")
	pack(t, image, packed)
	for _, source := range [][]string{
		{file}, {file + "@" + digestOf([]byte(pluginScript))}, {file + ".tgz"},
		{server.URL + "/names.tgz@" + digestOf(archive)},
		{"oci:" + image, "--name", "names"}, {"oci:" + image + ":v1@" + index.Digest, "--name", "names"}, {"oci:" + artifact},
		{"oci:" + packed + ":v1@" + index.Digest, "--name", "names"},
	} {
		dir := filepath.Join(t.TempDir(), "plugins")
		stdout, stderr, err := command(t, nil, append([]string{"plugin", "install", "--dir", dir}, source...)...)
		installed := filepath.Join(dir, "names")
		if want := installed + "@" + digestOf([]byte(pluginScript)) + "\n"; err != nil || stdout != want {
			t.Errorf("%q: %v, %q, want %q\n%s", source, err, stdout, want, stderr)
			continue
		}
		text, err := os.ReadFile(installed)
		info, statErr := os.Stat(installed)
		if err != nil || statErr != nil || string(text) != pluginScript || info.Mode().Perm() != 0o755 {
			t.Errorf("%q: %q, %v, %v", source, text, err, statErr)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%q: %d files in the folder, %v", source, len(entries), err)
		}
		pin, _, err := command(t, map[string]string{"SERVE_TRACING_PLUGIN_WRITABLE": "allow"}, "plugin", "pin", installed)
		if err != nil || pin != stdout {
			t.Errorf("%q: plugin pin prints %q, %v; want %q", source, pin, err, stdout)
		}
	}
}

// pack writes the files of a folder to a tar archive.
func pack(t *testing.T, dir, file string) {
	t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	if err := errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), os.WriteFile(file, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestFromArchiveFollowsLinks: a plugin may be a link to a program with several names, and
// a circle of links ends.
func TestFromArchiveFollowsLinks(t *testing.T) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "plugins/otlp", Linkname: "all", Typeflag: tar.TypeSymlink, Format: tar.FormatPAX},
		{Name: "plugins/all", Mode: 0o755, Size: int64(len(pluginScript)), Format: tar.FormatPAX},
		{Name: "a", Linkname: "b", Typeflag: tar.TypeSymlink, Format: tar.FormatPAX},
		{Name: "b", Linkname: "a", Typeflag: tar.TypeSymlink, Format: tar.FormatPAX},
	} {
		if err := archive.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := archive.Write([]byte(pluginScript)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := fromArchive(out.Bytes(), "otlp"); err != nil || string(got) != pluginScript {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := extract([]byte(pluginScript), "names", int64(len(pluginScript))-1, false); err == nil || !strings.Contains(err.Error(), "it has more than") {
		t.Errorf("a file beyond the bound: %q, %v", got, err)
	}
	var bomb bytes.Buffer
	w, err := zstd.NewWriter(&bomb)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); errors.Join(err, w.Close()) != nil {
		t.Fatal(err)
	}
	if got, err := extract(bomb.Bytes(), "names", 1<<20-1, false); !errors.Is(err, errTooLarge) {
		t.Errorf("a compressed file beyond the bound: %d bytes, %v", len(got), err)
	}
	if got, err := fromArchive(out.Bytes(), "a"); !errors.Is(err, errNotInArchive) {
		t.Errorf("a circle: %q, %v", got, err)
	}
}

// TestPluginInstallRefuses: nothing is installed, and the error has the reason.
func TestPluginInstallRefuses(t *testing.T) {
	work := t.TempDir()
	file := filepath.Join(work, "names")
	if err := os.WriteFile(file, []byte("no program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	changed, _ := image(t)
	blobs, err := filepath.Glob(filepath.Join(changed, "blobs", "sha256", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range blobs {
		text, err := os.ReadFile(blob)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(blob, append(text, ' '), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good, _ := image(t)
	zeros := "@sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct {
		source []string
		code   int
		want   string
	}{
		{[]string{file}, exitNo, "neither an ELF file nor a script"},
		{[]string{file + zeros}, exitNo, "and not sha256:0000"},
		{[]string{file + "@sha256:12"}, exitUsage, "want 64 hexadecimal digits"},
		{[]string{file + ".missing"}, exitUsage, "no such file"},
		{[]string{server.URL + "/names"}, exitUsage, "the digest is missing"},
		{[]string{server.URL + "/names" + zeros}, exitNo, "status 404 Not Found"},
		{[]string{"ftp://host/names" + zeros}, exitUsage, "want a file, oci: and a path, or an address"},
		{[]string{"oci:" + work}, exitUsage, "want an OCI layout, as a folder or a tar archive"},
		{[]string{"oci:" + file}, exitUsage, "want an OCI layout, as a folder or a tar archive"},
		{[]string{"oci:" + good}, exitUsage, "Name it with --name"},
		{[]string{"oci:" + good, "--name", "another"}, exitNo, `no layer has a file "another"`},
		{[]string{"oci:" + good, "--name", "../names"}, exitUsage, "want letters, digits"},
		{[]string{"oci:" + good + ":v2", "--name", "names"}, exitNo, "0 manifests fit, of 1"},
		{[]string{"oci:" + good + zeros, "--name", "names"}, exitNo, "0 manifests fit, of 1"},
		{[]string{"oci:" + changed, "--name", "names"}, exitNo, "nothing is installed"},
	} {
		dir := filepath.Join(t.TempDir(), "plugins")
		stdout, _, err := command(t, nil, append([]string{"plugin", "install", "--dir", dir}, c.source...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || exitCode(t.Context(), err) != c.code || stdout != "" {
			t.Errorf("%q: %v, %q; want %s", c.source, err, stdout, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("%q: %q is installed", c.source, left)
		}
	}
}

// TestPluginInstallRefusesTitles: a title in a layout is a name and no path, and adds
// no line to the file of variables.
func TestPluginInstallRefusesTitles(t *testing.T) {
	for _, title := range []string{"..", ".", "/", "a/..", ".hidden", "-x", "a b", "names\nSERVE_EVIL=1"} {
		from, add := layout(t)
		layer := add([]byte(pluginScript))
		layer.Annotations = map[string]string{ociTitle: title}
		manifest := add(asJSON(t, map[string]any{"layers": []ociDescriptor{layer}}))
		index := asJSON(t, map[string]any{"manifests": []ociDescriptor{manifest}})
		if err := os.WriteFile(filepath.Join(from, "index.json"), index, 0o600); err != nil {
			t.Fatal(err)
		}
		work := t.TempDir()
		stdout, _, err := command(t, nil, "plugin", "install", "oci:"+from,
			"--dir", filepath.Join(work, "plugins"), "--env-file", filepath.Join(work, "variables"))
		if exitCode(t.Context(), err) != exitUsage || stdout != "" || !strings.Contains(fmt.Sprint(err), "is no name of a plugin") {
			t.Errorf("%q: %v, %q", title, err, stdout)
		}
		if left, _ := filepath.Glob(filepath.Join(work, "*")); len(left) > 0 {
			t.Errorf("%q: %q is installed", title, left)
		}
	}
}

// TestPluginInstallReplaces: other bytes need --force, and the file of variables keeps
// its other lines and entries, its mode and its owner.
func TestPluginInstallReplaces(t *testing.T) {
	work := t.TempDir()
	file, dir, env := filepath.Join(work, "names"), filepath.Join(work, "plugins"), filepath.Join(work, "relay.env")
	installed := filepath.Join(dir, "names")
	if err := os.WriteFile(env, []byte("# of the relay\nSERVE_TRACING_EXPORTER_PLUGIN=otlp,mine="+installed+"@sha256:00\nA=b\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if uid == 0 { // only root can give a file to another user
		uid, gid = 1234, 5678
		if err := os.Chown(env, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	install := func(text string, args ...string) error {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := command(t, nil, append([]string{"plugin", "install", file, "--dir", dir, "--env-file", env}, args...)...)
		return err
	}
	want := func(variables string) {
		t.Helper()
		if got, err := os.ReadFile(env); err != nil || string(got) != variables {
			t.Errorf("%v\n%s\nwant\n%s", err, got, variables)
		}
	}
	if err := install(pluginScript); err != nil {
		t.Fatal(err)
	}
	first := "SERVE_TRACING_EXPORTER_PLUGIN=otlp,mine=" + installed + "@" + digestOf([]byte(pluginScript)) + "\n"
	want("# of the relay\n" + first + "A=b\n")
	if err := install(pluginScript); err != nil {
		t.Errorf("the same again: %v", err)
	}
	other := pluginScript + "# other\n"
	if err := install(other); err == nil || !strings.Contains(err.Error(), "is there already, with other bytes; --force replaces it") {
		t.Errorf("other bytes: %v", err)
	}
	want("# of the relay\n" + first + "A=b\n")
	if err := install(other, "--force", "--processor"); err != nil {
		t.Error(err)
	}
	want("# of the relay\n" + first + "A=b\nSERVE_TRACING_PROCESSOR_PLUGIN=" + installed + "@" + digestOf([]byte(other)) + "\n")
	info, err := os.Stat(env)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v; want mode 0640", info, err)
	}
	if owner := info.Sys().(*syscall.Stat_t); owner.Uid != uid || owner.Gid != gid {
		t.Errorf("owner %d:%d, want %d:%d", owner.Uid, owner.Gid, uid, gid)
	}

	target := filepath.Join(work, "target.env")
	if err := errors.Join(os.Rename(env, target), os.Symlink(target, env),
		os.WriteFile(target, []byte("SERVE_TRACING_EXPORTER_PLUGIN=otlp\nA=b\nSERVE_TRACING_EXPORTER_PLUGIN=console\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := install(other); err != nil {
		t.Error(err)
	}
	// The last assignment counts, and the link stays.
	want("SERVE_TRACING_EXPORTER_PLUGIN=otlp\nA=b\nSERVE_TRACING_EXPORTER_PLUGIN=console," + installed + "@" + digestOf([]byte(other)) + "\n")
	if info, err := os.Lstat(env); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("%v, %v; want a link", info, err)
	}
}
