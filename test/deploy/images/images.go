package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user runs in the images. It has no name in other images, so manifests use the number.
const user = "65532"

// documents are the texts that every image has.
var documents = []string{"LICENSE", "NOTICE", "THIRD_PARTY_LICENSES"}

// stock are the names of the stock plugins: links to their executable.
var stock = []string{"console", "datadog", "otlp", "processors"}

// kind is one of the images.
type kind struct {
	name, title string
	layers      []func(*tree)
	config      v1.Config
}

var kinds = []kind{
	{
		name: "servetrace-base", title: "The base of a service's image, with the stock plugins of servetrace",
		layers: []func(*tree){system, plugins("usr/lib/servetrace/plugins")},
	},
	{
		name: "servetrace-relay", title: "The relay of servetrace, with the stock plugins",
		layers: []func(*tree){system, plugins("usr/lib/servetrace/plugins"), command},
		config: v1.Config{
			Entrypoint:   []string{"/usr/bin/servetrace"},
			Cmd:          []string{"relay"},
			ExposedPorts: map[string]struct{}{"4317/tcp": {}, "4318/tcp": {}},
		},
	},
	{
		name: "servetrace-plugins", title: "The stock plugins of servetrace, for a volume",
		layers: []func(*tree){plugins("plugins"), licenses},
		config: v1.Config{Entrypoint: []string{"/plugins/.servetrace-plugins"}, Cmd: []string{"install", "/target"}},
	},
}

// system adds the files that a static executable needs.
func system(t *tree) {
	t.text("etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:"+user+":"+user+":nonroot:/:/sbin/nologin\n")
	t.text("etc/group", "root:x:0:\nnonroot:x:"+user+":\n")
	t.text("etc/ssl/certs/ca-certificates.crt", certificates())
	t.folder("tmp", 0o1777)
	licenses(t)
}

// certificates returns the roots as PEM. It leaves out a root that is trusted for some
// certificates only, because a file cannot tell this.
func certificates() string {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory
		}
	}
	return text.String()
}

func licenses(t *tree) {
	for _, name := range documents {
		t.file(name, "usr/share/doc/servetrace/"+name, 0o644)
	}
}

// plugins returns the layer of the stock plugins in a folder. Hosts do not list the
// executable, because its name begins with a dot.
func plugins(folder string) func(*tree) {
	return func(t *tree) {
		t.file("servetrace-plugins", folder+"/.servetrace-plugins", 0o755)
		for _, name := range stock {
			t.link(".servetrace-plugins", folder+"/"+name)
		}
	}
}

// command adds the command, in the places that the packages have.
func command(t *tree) {
	t.file("servetrace", "usr/lib/servetrace/servetrace", 0o755)
	t.link("/usr/lib/servetrace/servetrace", "usr/bin/servetrace")
}

// image returns the image for an architecture.
func (k kind) image(dist, arch, version string, made time.Time) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	config := k.config
	config.User = user + ":" + user
	config.WorkingDir = "/"
	config.Env = []string{"PATH=/usr/bin"}
	config.Labels = map[string]string{
		"org.opencontainers.image.title":    k.title,
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source":   "https://github.com/servetrace/servetrace",
	}
	img, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: made}, Config: config,
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	for _, fill := range k.layers {
		t := newTree(os.DirFS(filepath.Clean(dist)), made)
		fill(t)
		text, err := t.close()
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(text)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "servetrace"}}); err != nil {
			return nil, err
		}
	}
	return img, nil
}
