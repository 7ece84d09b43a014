package deploy

import (
	"archive/tar"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// imageUser is the user of the images.
const imageUser = 65532

// stock are the stock plugins.
var stock = []string{"console", "datadog", "otlp", "processors"}

// TestRelayImage unpacks the image in a root folder of its own and runs its command, with a
// pinned plugin. Nothing is left in /tmp.
func TestRelayImage(t *testing.T) {
	root, config := unpackImage(t, "servetrace-relay")
	sum := sha256.Sum256([]byte(readFile(t, filepath.Join(root, "usr/lib/servetrace/plugins/.servetrace-plugins"))))
	for _, plugin := range []string{"console", "/usr/lib/servetrace/plugins/console@sha256:" + hex.EncodeToString(sum[:])} {
		checkRelay(t, program{
			root: root, command: slices.Concat(config.Entrypoint, config.Cmd), user: imageUser,
			env: append(config.Env, "SERVE_TRACING_EXPORTER_PLUGIN="+plugin),
		})
	}
	left, err := os.ReadDir(filepath.Join(root, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in /tmp: %v, %v", left, err)
	}
}

// TestBaseImage puts a service into the image, as the how-to does, and sends a request.
func TestBaseImage(t *testing.T) {
	root, config := unpackImage(t, "servetrace-base")
	build := exec.Command("go", "build", "-o", filepath.Join(root, "usr/bin/app"), "./examples/hello")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	service := program{
		root: root, command: []string{"/usr/bin/app"}, user: imageUser,
		env: append(config.Env, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_HTTP_PORT=0"),
	}.start(t)
	url := await(t, service.stderr, `msg=serving url=(\S+)`)
	if got := get(t, url); !strings.Contains(got, "ello") {
		t.Errorf("the service answers %q", got)
	}
	await(t, service.stdout, `"name": "(proxy_http_request\b.*)"`)
	service.stop(t, `msg=stopped spans=\d+ (console.delivered)=`)
	if pool := readFile(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")); strings.Count(pool, "BEGIN CERTIFICATE") < 50 {
		t.Errorf("%d root certificates", strings.Count(pool, "BEGIN CERTIFICATE"))
	}
}

// TestPluginsImage runs the plugins where a volume has them, and where the image's command
// installs them.
func TestPluginsImage(t *testing.T) {
	root, config := unpackImage(t, "servetrace-plugins")
	target := filepath.Join(root, "target") // a volume, which the kubelet makes
	if err := errors.Join(os.Mkdir(target, 0o700), os.Chown(target, imageUser, imageUser)); err != nil {
		t.Fatal(err)
	}
	install := program{root: root, command: slices.Concat(config.Entrypoint, config.Cmd), user: imageUser}
	if out, err := install.cmd().CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", install.command, err, out)
	}
	for _, folder := range []string{"/plugins/", "/target/"} {
		for _, name := range stock {
			plugin := program{root: root, command: []string{folder + name}, user: imageUser}
			out, err := plugin.cmd("--describe").CombinedOutput()
			if want := `"name": "` + name + `"`; err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s%s describes itself without %s: %v\n%s", folder, name, want, err, out)
			}
		}
	}
}

// TestImagesOfEachArchitecture reads all images back: the digests of all parts, the platform, the user, and the command, which must be an executable for the
// architecture.
func TestImagesOfEachArchitecture(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, name := range []string{"servetrace-base", "servetrace-relay", "servetrace-plugins"} {
		index := readIndex(t, name)
		if err := validate.Index(index, validate.Fast); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range manifest.Manifests {
			t.Run(name+"/"+d.Platform.Architecture, func(t *testing.T) {
				img, err := index.Image(d.Digest)
				if err != nil {
					t.Fatal(err)
				}
				file, err := img.ConfigFile()
				if err != nil {
					t.Fatal(err)
				}
				if got := file.Platform(); !got.Equals(*d.Platform) || got.OS != "linux" {
					t.Errorf("the platform is %v, and %v in the index", got, d.Platform)
				}
				if want := "65532:65532"; file.Config.User != want {
					t.Errorf("it runs as %q, want %q", file.Config.User, want)
				}
				root := t.TempDir()
				content := mutate.Extract(img)
				defer func() { _ = content.Close() }()
				untar(t, content, root)
				programs := []string{"usr/lib/servetrace/plugins/otlp"}
				if name == "servetrace-plugins" {
					programs[0] = "plugins/otlp"
				}
				if len(file.Config.Entrypoint) > 0 {
					programs = append(programs, strings.TrimPrefix(file.Config.Entrypoint[0], "/"))
				}
				for _, program := range programs {
					checkExecutable(t, root, program, machines[d.Platform.Architecture])
				}
			})
		}
	}
}

// checkExecutable checks a program of an image, or the program that a link names.
func checkExecutable(t *testing.T, root, program string, machine elf.Machine) {
	t.Helper()
	if link, err := os.Readlink(filepath.Join(root, program)); err == nil {
		if !path.IsAbs(link) {
			link = path.Join(path.Dir(program), link)
		}
		program = link
	}
	file, err := elf.Open(filepath.Join(root, program))
	if err != nil {
		t.Errorf("%s: %v", program, err)
		return
	}
	defer func() { _ = file.Close() }() // read only
	if info, err := os.Stat(filepath.Join(root, program)); err != nil || info.Mode().Perm() != 0o755 || file.Machine != machine {
		t.Errorf("%s: %v, %v, %v; want an executable for %v", program, info, err, file.Machine, machine)
	}
}

// readIndex returns the index of an image of `make release`.
func readIndex(t *testing.T, name string) v1.ImageIndex {
	t.Helper()
	archive, err := os.Open(released(t, name+"_*.oci.tar")[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }() // read only
	folder := t.TempDir()
	untar(t, archive, folder)
	blobs, err := filepath.Glob(filepath.Join(folder, "blobs/sha256/*"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
	for _, blob := range blobs {
		if got := digest(t, blob); got != filepath.Base(blob) {
			t.Errorf("the blob %s has the digest %s", filepath.Base(blob), got)
		}
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	return child(t, index)
}

// unpackImage unpacks an image of `make release` for this machine, and returns its root
// folder and configuration.
func unpackImage(t *testing.T, name string) (root string, config v1.Config) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	images, err := partial.FindImages(readIndex(t, name), func(d v1.Descriptor) bool {
		return d.Platform.OS == runtime.GOOS && d.Platform.Architecture == runtime.GOARCH
	})
	if err != nil || len(images) != 1 {
		t.Fatalf("%s: %d images for %s, %v", name, len(images), runtime.GOARCH, err)
	}
	file, err := images[0].ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	content := mutate.Extract(images[0])
	defer func() { _ = content.Close() }()
	untar(t, content, root)
	return root, file.Config
}

// child returns the index of an image, the only entry of its layout.
func child(t *testing.T, index v1.ImageIndex) v1.ImageIndex {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v, %v, want an index alone", manifest, err)
	}
	image, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// untar unpacks folders, files and links.
func untar(t *testing.T, archive io.Reader, folder string) {
	t.Helper()
	for in := tar.NewReader(archive); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.Mkdir(path, 0o700)
			if errors.Is(err, fs.ErrExist) {
				err = nil
			}
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, path)
		default:
			var text []byte
			if text, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(path, text, 0o600)
			}
		}
		if err == nil && header.Typeflag != tar.TypeSymlink {
			err = os.Chmod(path, header.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
