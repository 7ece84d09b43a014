//go:build linux

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// debianPackages are unpacked, not installed. The libraries are of nft and runc.
var debianPackages = []string{
	"containerd", "runc", "containernetworking-plugins", "nftables", "libnftables1", "libnftnl11", "libmnl0", "libjansson4",
	"libxtables12", "libseccomp2", "libedit2", "libbsd0", "libmd0",
}

// progressEvery is the time between two lines about a long build.
const progressEvery = 10 * time.Second

// A program is a binary that is built from a module beside this one, pinned by its go.mod.
type program struct {
	name string // of the binary and of the folder of the module
	pkg  string
	// module is the dependency of whose version it is said to be.
	module string
}

var (
	kube    = program{"kube", ".", "k8s.io/kubernetes"}
	coredns = program{"coredns", ".", "github.com/coredns/coredns"}
	adapter = program{"adapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter", "sigs.k8s.io/prometheus-adapter"}
	// Debian's cannot ask Kubernetes for pods.
	prometheus = program{"prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus"}
)

// build puts into the cache all that the bed needs and that is not there.
func (b *bed) build(ctx context.Context) error {
	paths := map[program]string{}
	for _, p := range []program{kube, coredns, adapter, prometheus} {
		path, err := b.buildProgram(ctx, p)
		if err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
		paths[p] = path
	}
	b.kube, b.prometheus = paths[kube], paths[prometheus]
	if err := b.unpackDebian(ctx); err != nil {
		return fmt.Errorf("unpack Debian packages: %w", err)
	}
	return b.makeImages(ctx, paths)
}

// buildProgram returns the path of a program, and builds it if it is not in the cache. Its
// folder there is named for the sources and the Go version, so that a change builds anew.
func (b *bed) buildProgram(ctx context.Context, p program) (string, error) {
	goVersion, err := output(ctx, b.module, "go", "version")
	if err != nil {
		return "", err
	}
	module := filepath.Join(b.module, p.name)
	hash := sha256.New()
	hash.Write([]byte(goVersion))
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil && (name != "main.go" || p.pkg == ".") {
			return "", err
		}
		hash.Write(text)
	}
	dir := filepath.Join(b.cache, p.name+"-"+hex.EncodeToString(hash.Sum(nil))[:12])
	path := filepath.Join(dir, p.name)
	if _, err := os.Stat(path); err == nil {
		b.say("%s is built: %s", p.name, path)
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	b.say("building %s: once for each version, and for long", p.name)
	version, err := output(ctx, module, "go", "list", "-m", "-f", "{{.Version}}", p.module)
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, version)
	}
	// The name is taken at the end, so that a broken build is not found.
	part := path + ".part"
	link := "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(version)
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-buildvcs=false", "-tags=remove_all_sd,enable_kubernetes_sd", link, "-o", part, p.pkg)
	cmd.Dir = module
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if err := b.follow(cmd); err != nil {
		return "", err
	}
	return path, os.Rename(part, path)
}

// follow runs a go command with -v and says from time to time how many packages are
// compiled. An error has the last lines of the output.
func (b *bed) follow(cmd *exec.Cmd) error {
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	begin, said := time.Now(), time.Now()
	var last []string
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = append(last, lines.Text())[max(0, len(last)-20):]
		n++
		if time.Since(said) > progressEvery {
			said = time.Now()
			b.say("%4d of at most 2,700 packages after %s: %s", n, said.Sub(begin).Round(time.Second), lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(last, "\n"))
	}
	b.say("built %d packages in %s", n, time.Since(begin).Round(time.Second))
	return nil
}

// unpackDebian unpacks the packages into a folder of the cache that is named for their
// versions. apt-get checks their signatures.
func (b *bed) unpackDebian(ctx context.Context) error {
	text, err := output(ctx, b.module, "apt-cache", append([]string{"policy"}, debianPackages...)...)
	if err != nil {
		return err
	}
	if strings.Count(text, "Candidate:") != len(debianPackages) || strings.Contains(text, "Candidate: (none)") {
		if text, err = output(ctx, b.module, "apt-get", "update", "-q"); err != nil {
			return fmt.Errorf("%w\n%s", err, text)
		}
		if text, err = output(ctx, b.module, "apt-cache", append([]string{"policy"}, debianPackages...)...); err != nil {
			return err
		}
	}
	var versions []string
	for line := range strings.Lines(text) {
		if _, version, ok := strings.Cut(line, "Candidate: "); ok {
			versions = append(versions, strings.TrimSpace(version))
		}
	}
	if len(versions) != len(debianPackages) {
		return fmt.Errorf("apt-cache knows versions of %d of %s", len(versions), strings.Join(debianPackages, " "))
	}
	sum := sha256.Sum256([]byte(strings.Join(versions, " ")))
	b.debian = filepath.Join(b.cache, "debian-"+hex.EncodeToString(sum[:])[:12])
	if _, err := os.Stat(b.debian); err == nil {
		b.say("Debian packages are unpacked: containerd %s, runc %s", versions[0], versions[1])
		return nil
	}
	b.say("downloading Debian packages, some 36 MB: containerd %s, runc %s", versions[0], versions[1])
	work, err := os.MkdirTemp(b.cache, "debian-part-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // the next build has another folder
	if text, err := output(ctx, work, "apt-get", append([]string{"download", "-q"}, debianPackages...)...); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if text, err := output(ctx, work, "dpkg-deb", "-x", deb, filepath.Join(work, "root")); err != nil {
			return fmt.Errorf("%w\n%s", err, text)
		}
	}
	return os.Rename(filepath.Join(work, "root"), b.debian)
}

// output returns what a command prints, also on standard error if it fails.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		out = append(out, exit.Stderr...)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return string(out), err
}

// makeImages makes the images of the bed: pause, which holds the namespaces of a pod, two
// examples with the console plugin, and the programs that run in pods.
func (b *bed) makeImages(ctx context.Context, programs map[program]string) error {
	dir := filepath.Join(b.cache, "images")
	bin := func(name string) string { return filepath.Join(dir, "bin", name) }
	if err := os.MkdirAll(bin(""), 0o755); err != nil {
		return err
	}
	root := filepath.Join(b.module, "..", "..")
	for _, from := range []struct{ module, pkg string }{
		{b.module, "./pause"}, {root, "./examples/composition"}, {root, "./examples/streaming"}, {root, "./plugins/console"},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", bin("")+"/", from.pkg)
		cmd.Dir = from.module
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", from.pkg, err, out)
		}
	}
	b.images = map[string]string{}
	for name, files := range map[string]map[string]string{
		"pause":     {"/pause": bin("pause")},
		"app":       {"/app": bin("composition"), "/plugins/console": bin("console")},
		"streaming": {"/streaming": bin("streaming"), "/plugins/console": bin("console")},
		"coredns":   {"/coredns": programs[coredns]},
		"adapter":   {"/adapter": programs[adapter]},
	} {
		b.images[name] = filepath.Join(dir, name+".tar")
		if err := writeImage(b.images[name], "bed.test/"+name+":1", "/"+name, files); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return nil
}

// writeImage writes an OCI image of executable files, by their paths in the image.
func writeImage(out, name, entrypoint string, files map[string]string) error {
	layer := new(bytes.Buffer)
	archive := tar.NewWriter(layer)
	for path, source := range files {
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		if err := add(archive, strings.TrimPrefix(path, "/"), 0o755, data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	type object = map[string]any
	blobs := map[string][]byte{}
	put := func(mediaType string, data []byte) object {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		blobs[digest] = data
		return object{"mediaType": mediaType, "digest": "sha256:" + digest, "size": len(data)}
	}
	var fault error
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		fault = errors.Join(fault, err)
		return data
	}
	const prefix = "application/vnd.oci.image."
	layerRef := put(prefix+"layer.v1.tar", layer.Bytes())
	config := put(prefix+"config.v1+json", encode(object{
		"architecture": runtime.GOARCH, "os": runtime.GOOS,
		"config": object{"Entrypoint": []string{entrypoint}, "Env": []string{"PATH=/"}},
		"rootfs": object{"type": "layers", "diff_ids": []any{layerRef["digest"]}},
	}))
	manifest := put(prefix+"manifest.v1+json", encode(object{
		"schemaVersion": 2, "mediaType": prefix + "manifest.v1+json", "config": config, "layers": []any{layerRef},
	}))
	manifest["annotations"] = object{"io.containerd.image.name": name}
	index := encode(object{"schemaVersion": 2, "manifests": []any{manifest}})
	if fault != nil {
		return fault
	}
	whole := new(bytes.Buffer)
	archive = tar.NewWriter(whole)
	err := errors.Join(add(archive, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)), add(archive, "index.json", 0o644, index))
	for digest, data := range blobs {
		err = errors.Join(err, add(archive, "blobs/sha256/"+digest, 0o644, data))
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		return err
	}
	return os.WriteFile(out, whole.Bytes(), 0o644)
}

// add adds a file to an archive.
func add(archive *tar.Writer, name string, mode int64, data []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := archive.Write(data)
	return err
}
