package plugintest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/pluginsdk"
)

// Target is the plugin that is tested, made by [Binary] or [InProcess]. It is
// a value, may be used several times, and starts nothing by itself.
type Target struct {
	path string // an executable; empty: spec counts
	env  []string
	spec *pluginsdk.Spec
}

// Binary is the plugin that an executable is, in any language. path is absolute
// or relative to the working directory. env ("KEY=value") is added to the small
// environment that a host starts a plugin with; a host adds nothing, so it is
// for test binaries that are told by a variable to be a plugin, and for
// coverage. What the plugin is configured with is [WithEnv]'s.
func Binary(path string, env ...string) Target {
	return Target{path: path, env: slices.Clone(env)}
}

// InProcess is the plugin that a Spec is, run inside the test's own process
// behind a real socket. Rules about processes (signals, exit status,
// descriptors) do not apply to it; in exchange the suite sees what reaches the
// exporter.
func InProcess(spec pluginsdk.Spec) Target { return Target{spec: &spec} }

// String names the target in reports: the path, or the Spec's name.
func (t Target) String() string {
	if t.spec != nil {
		return t.spec.Name
	}
	return t.path
}

// check tells whether there is something to start.
func (t Target) check() error {
	if t.spec != nil {
		return nil
	}
	if t.path == "" {
		return errors.New("test plugin: no path and no Spec: make the Target with Binary or InProcess")
	}
	if err := launch.Check(t.path, launch.Trust{AllowWritable: true}); err != nil {
		return fmt.Errorf("test plugin: %w", err)
	}
	return nil
}

// executable is the path in a form that exec does not look up in PATH.
func (t Target) executable() (string, error) {
	path, err := filepath.Abs(t.path)
	if err != nil {
		return "", fmt.Errorf("test plugin %s: %w", t.path, err)
	}
	return path, nil
}
