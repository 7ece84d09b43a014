package supervise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
)

// Plan has the settings and the content of files for one start of a plugin.
type Plan struct {
	Name string
	// Path is the executable, or the socket of an attached plugin. This host neither starts
	// nor configures an attached plugin, so the fields from Function on are empty.
	Path     string
	Attached bool
	// Kind is the kind of plugin that the list wants. EitherKind accepts exporters and
	// processors, for tools.
	Kind       pluginv1.Kind
	EitherKind bool
	// Function is the function in Python that the plugin runs, MODULE:FUNCTION, or empty.
	// Args are the arguments of the executable.
	Function string
	Args     []string
	trust    launch.Trust
	// Environ is the environment of the process at its start. grantedAtStart reports
	// whether the granted variables are in it.
	Environ        []string
	grantedAtStart bool
	// Config is the configuration as the operator wrote it, nil for none, and configFile
	// its path. Document is Config with its references resolved. Only the plugin gets the
	// Document.
	Config, Document []byte
	configFile       string
	// Secrets are the texts that Redactor removes from log lines: values of references,
	// and of variables that the plugin may get.
	Secrets  []string
	Redactor launch.Redactor
}

// plan returns the Plan for a start of the plugin e. If it returns an error, the Plan
// has the parts that are known.
func (c *Settings) plan(e pluginlist.Entry) (Plan, error) {
	p := Plan{Name: e.Name, Attached: e.Attached, Function: e.Function, Kind: pluginv1.Kind_KIND_EXPORTER}
	if e.Processor {
		p.Kind = pluginv1.Kind_KIND_PROCESSOR
	}
	var err error
	if p.Path, err = e.Resolve(c.Plugins); err != nil || p.Attached {
		return p, err
	}
	python := pluginlist.PythonStartOf(c.Plugins, e)
	p.Args = python.Args
	p.trust = launch.Trust{Digest: []byte(e.Digest), AllowWritable: c.AllowWritable, Imports: python.Imports}
	p.Environ = slices.Concat(python.Environ, c.Plugins.StartEnviron(e.Name)) // if a variable is set twice, the last value counts
	p.configFile = c.Plugins.PluginConfigs[e.Name].File
	if p.Config, p.Document, p.Secrets, err = c.Plugins.ReadConfiguration(e.Name); err != nil {
		err = configurationError{err}
	}
	p.Redactor = launch.NewRedactor(p.Secrets)
	return p, err
}

// missing returns the granted variables that are not in the start environment of the
// process, each as "NAME=value".
func (p Plan) missing(granted map[string]string) []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(granted)) {
		if kv := name + "=" + granted[name]; !slices.Contains(p.Environ, kv) {
			missing = append(missing, kv)
		}
	}
	return missing
}

// startContext returns a context that ends after the start timeout, with errStartTimeout
// as its cause.
func (c *Settings) startContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.StartTimeout, errStartTimeout)
}

// errStartTimeout wraps DeadlineExceeded, by which package launch recognises a timeout.
var errStartTimeout = fmt.Errorf("start timeout: %w", context.DeadlineExceeded)

// startError adds the start timeout to an error, if the timeout has ended the start.
func (c *Settings) startError(start context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(start), errStartTimeout) {
		return err
	}
	return fmt.Errorf("%w (%s=%v)", err, EnvStartTimeout, c.StartTimeout)
}

// Check returns the faults of the plugin's file that are visible without a start.
func (p Plan) Check() error {
	if p.Attached {
		return launch.CheckSocket(p.Path)
	}
	return p.explain(launch.Check(p.Path, p.trust))
}
