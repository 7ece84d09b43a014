package pluginlist

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The variables that this package names in its errors.
const (
	EnvPlugins = "SERVE_TRACING_EXPORTER_PLUGIN"
	// EnvProcessors is the list of the processors that all exporters share.
	// EnvExporterProcessors has the processors of single exporters, "EXPORTER:ENTRY".
	EnvProcessors         = "SERVE_TRACING_PROCESSOR_PLUGIN"
	EnvExporterProcessors = "SERVE_TRACING_EXPORTER_PROCESSORS"
	EnvProcessorFail      = "SERVE_TRACING_PROCESSOR_FAIL"
	EnvPluginDir          = "SERVE_TRACING_PLUGIN_DIR"
	EnvPluginConfig       = "SERVE_TRACING_PLUGIN_CONFIG"
	EnvLockdown           = "SERVE_TRACING_LOCKDOWN"
	EnvPluginEnv          = "SERVE_TRACING_PLUGIN_ENV"
	EnvPluginMemoryLimit  = "SERVE_TRACING_PLUGIN_GOMEMLIMIT"
	EnvPluginMaxProcs     = "SERVE_TRACING_PLUGIN_GOMAXPROCS"
	EnvPython             = "SERVE_TRACING_PYTHON"
)

// Settings are the operator's settings of plugins. Config in package host documents the
// fields, which have the same names. The settings do not change.
type Settings struct {
	Plugins            string
	Processors         string
	ExporterProcessors map[string]string
	FailOpen           map[string]bool
	PluginDirs         []string
	PluginConfigs      map[string]Configuration
	Lockdown           bool
	PluginEnv          map[string][]string
	PluginMemoryLimit  map[string]int64
	PluginMaxProcs     map[string]int
	Python             string
	PythonDir          string
	// Environ is the environment from which plugins get their variables.
	Environ []string
}

// Validate reports all faults of the settings at once. It opens no file, but may list
// folders.
func (s *Settings) Validate() error {
	list, err := s.entries()
	if err != nil {
		return err
	}
	return errors.Join(validateFail(s, list), validateConfigs(s.PluginConfigs, list), validatePluginEnv(s, list), validateLimits(s, list), validateLockdown(s, list))
}

// entries parses all lists. It does not replace a folder by its plugins. A function in
// Python gets the pin of the interpreter.
func (s *Settings) entries() ([]Entry, error) {
	list, err := parseLists(s)
	_, digest, faulty := cutPin(s.Python)
	if faulty != nil {
		return nil, errors.Join(err, fmt.Errorf("%s=%q: %w", EnvPython, s.Python, faulty))
	}
	for i := range list {
		if list[i].Function != "" {
			list[i].Digest = digest
		}
	}
	return list, err
}

// ReadConfiguration returns the configuration of a plugin as the operator wrote it, nil for
// none, and the configuration with its references resolved. The resolved text must not be
// shown. secrets are the texts to redact: values of references, and of variables that the
// plugin may get. It blocks while it reads files.
func (s *Settings) ReadConfiguration(plugin string) (written, resolved []byte, secrets []string, err error) {
	refs := secretsFor(s, plugin)
	config := s.PluginConfigs[plugin]
	if written, err = config.load(); err == nil {
		resolved, err = resolveReferences(written, refs.lookUp)
		err = config.explain(err)
	}
	return written, resolved, refs.texts(s.Environ), err
}

// RuntimeDirs returns the folders in which the sockets of plugins may be, as the
// environment names them.
func (s *Settings) RuntimeDirs() []string {
	if dir := valueOf(s.Environ, "XDG_RUNTIME_DIR"); dir != "" {
		return []string{dir}
	}
	return nil
}

// valueOf returns the value of the variable name in an environment, or "" if it is not
// set. If it occurs twice, the last value counts, as in a process.
func valueOf(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// FailsOpen reports whether spans go on without the processor if it does not work.
func (s *Settings) FailsOpen(processor string) bool {
	open, _ := byName(s.FailOpen, processor)
	return open
}

// parseItems parses a setting with items that are separated by commas. The function
// parse adds the values of one item to values. parseItems reports all faults at once,
// and then returns no values.
func parseItems[T any](variable, text string, parse func(item string, values map[string]T) error) (map[string]T, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var errs []error
	values := map[string]T{}
	for item := range strings.SplitSeq(text, ",") {
		if err := parse(strings.TrimSpace(item), values); err != nil {
			errs = append(errs, fmt.Errorf("%s: entry %q: %w", variable, item, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return values, nil
}

func sortedKeys[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}

// Reference is a reference in a plugin's configuration.
type Reference struct {
	// Text is the reference, "${env:NAME}". A reference in an unknown form is cut to a
	// part that cannot be secret.
	Text string
	// Err is the reason why the reference cannot be resolved, or nil. It never contains
	// the value.
	Err error
}

// References returns the references in the configuration of a plugin, each once, in
// their order. It tries to find the value of each reference. It blocks while it reads
// files.
func (s *Settings) References(plugin string) ([]Reference, error) {
	config := s.PluginConfigs[plugin]
	document, err := config.load()
	if err != nil {
		return nil, err
	}
	var list []Reference
	known := map[string]bool{}
	refs := secretsFor(s, plugin)
	_, err = resolveReferences(document, func(reference string) (string, error) {
		value, err := refs.lookUp(reference)
		if !known[reference] {
			known[reference] = true
			list = append(list, Reference{shownReference(reference), errors.Unwrap(err)})
		}
		return value, nil // without an error, so that the next reference is tried too
	})
	return list, config.explain(err)
}
