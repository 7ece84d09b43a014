// Command images writes the container images of a release as OCI layouts. It needs no
// daemon, no registry and no base image: all files come from the release, except for the
// root certificates, which are those of the Go project's bundle.
//
//	images -version 1.2.3 -out FOLDER amd64=DIST arm64=DIST
//
// DIST has servetrace, servetrace-plugins and the texts of the licences for an
// architecture. FOLDER then has a layout for each image, with an index over the
// architectures:
//
//	servetrace-base     certificates, a user, /tmp and the stock plugins, for a service
//	servetrace-relay    the base with the command, which runs the relay
//	servetrace-plugins  the stock plugins in /plugins, for a volume
//
// SOURCE_DATE_EPOCH is the time of all files, in seconds, so that the same files give the
// same bytes. deploy/release.sh runs the command. Open images.go first.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	version := flags.String("version", "", "the version, for the names of the images")
	out := flags.String("out", "", "the folder for the layouts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) //nolint:forbidigo // the only variable
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	if *version == "" || *out == "" || flags.NArg() == 0 {
		return errors.New("want images -version VERSION -out FOLDER ARCH=DIST")
	}
	made := time.Unix(seconds, 0).UTC()
	for _, kind := range kinds {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, arg := range flags.Args() {
			arch, dist, found := strings.Cut(arg, "=")
			if !found {
				return fmt.Errorf("argument %q: want ARCH=DIST", arg)
			}
			img, err := kind.image(dist, arch, *version, made)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", kind.name, arch, err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
				Platform: &v1.Platform{OS: "linux", Architecture: arch},
			}})
		}
		if err := write(filepath.Join(*out, kind.name), index, kind.name+":"+*version, *version); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}

// write makes the layout of an image. The names are for docker load and for podman.
func write(folder string, index v1.ImageIndex, image, version string) error {
	path, err := layout.Write(folder, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          image,
		"org.opencontainers.image.ref.name": version,
	}))
}
