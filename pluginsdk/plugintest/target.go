package plugintest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/pluginsdk"
)

// Target is a plugin to test. [Binary] and [InProcess] return it. It may be tested
// several times. A Target alone starts nothing.
type Target struct {
	path string // path of the executable; not used if spec is not nil
	env  []string
	spec *pluginsdk.Spec
}

// Binary returns a plugin that is an executable file, written in any language. path is
// absolute or relative to the working directory. Each element of env ("KEY=value") is
// added to the few variables with which a host starts a plugin. env is for GOCOVERDIR,
// and for a test binary that acts as a plugin if a variable is set. To configure the
// plugin, use [WithEnv].
func Binary(path string, env ...string) Target {
	return Target{path: path, env: slices.Clone(env)}
}

// InProcess returns the plugin that spec declares. It runs inside the test's own process,
// behind a real socket. Rules about processes (signals, exit status, descriptors) do not
// apply to it. In exchange, the suite sees the spans that reach the exporter.
func InProcess(spec pluginsdk.Spec) Target { return Target{spec: &spec} }

// String returns the target's name in reports: the path, or the Spec's name.
func (t Target) String() string {
	if t.spec != nil {
		return t.spec.Name
	}
	return t.path
}

// check returns an error if the target has no executable file and no Spec.
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

// executable returns the absolute path of the executable, so that it is not looked up in
// PATH.
func (t Target) executable() (string, error) {
	path, err := filepath.Abs(t.path)
	if err != nil {
		return "", fmt.Errorf("test plugin %s: %w", t.path, err)
	}
	return path, nil
}
