package pluginlist

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/servetrace/servetrace/internal/wire"
)

// StartEnviron returns the environment that a plugin starts with. It has the base
// variables (such as PATH), the variables that the operator names for the plugin, and
// its limits. The limits override both.
func (s *Settings) StartEnviron(name string) []string {
	limits := s.Limits(name)
	var out []string
	for _, kv := range s.Environ {
		variable, _, _ := strings.Cut(kv, "=")
		_, own := limits[variable]
		if !own && (wire.BaseVariable(variable) || s.named(name, variable)) && !wire.HandshakeVariable(variable) {
			out = append(out, kv)
		}
	}
	for _, variable := range sortedKeys(limits) {
		out = append(out, variable+"="+limits[variable].Value)
	}
	return out
}

// Grant returns the variables that a plugin gets because it declares them, or because
// the operator names them. Under lock-down, only base variables and named variables are
// granted, and withheld has the names of the other declared variables. It returns an
// error for a declared pattern that [wire.ValidEnvPattern] refuses. It also returns an
// error for a granted variable with a value that is not UTF-8, which the contract cannot
// carry.
func (s *Settings) Grant(plugin string, declared []string) (granted map[string]string, withheld []string, err error) {
	for _, pattern := range declared {
		if !wire.ValidEnvPattern(pattern) {
			return nil, nil, fmt.Errorf("the plugin asks for variables %q: must be %s", wire.Clip(pattern), wantPattern)
		}
	}
	granted = map[string]string{}
	limits := s.Limits(plugin)
	for _, kv := range s.Environ {
		name, value, ok := strings.Cut(kv, "=")
		asked := wire.DeclaredBy(declared, name) != ""
		named := s.named(plugin, name)
		if _, own := limits[name]; !ok || own || wire.HandshakeVariable(name) || !asked && !named {
			continue
		}
		valid := utf8.ValidString(name) && utf8.ValidString(value)
		switch {
		case s.withheld(plugin, name):
			withheld = append(withheld, name)
		case valid:
			granted[name] = value
		case asked:
			return nil, nil, fmt.Errorf("the plugin asks for variable %q, whose value is not UTF-8 and cannot be sent: correct it, or unset it", name)
		}
	}
	slices.Sort(withheld)
	return granted, slices.Compact(withheld), nil
}

// ExplainUngranted adds a hint to the error of a plugin that refused its configuration. It
// does so if the error names a variable that is set for this process but was not granted.
// The plugin reports such a variable as not set.
func (s *Settings) ExplainUngranted(plugin string, environ []string, granted map[string]string, withheld []string, err error) error {
	if err == nil {
		return nil
	}
	names := strings.FieldsFunc(err.Error(), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') })
	for _, kv := range s.Environ {
		name, _, _ := strings.Cut(kv, "=")
		_, got := granted[name]
		switch {
		case got || name == "_" || slices.Contains(environ, kv) || // bash exports _
			wire.HandshakeVariable(name) || !slices.Contains(names, name):
		case slices.Contains(withheld, name):
			return fmt.Errorf("%w (%s is set for this process, and lock-down keeps it from the plugin: add %s:%s to %s)", err, name, plugin, name, EnvPluginEnv)
		default:
			return fmt.Errorf("%w (%s is set for this process, but the plugin does not declare it and so does not get it: add it to the plugin's Spec.Env, or %s:%s to %s)",
				err, name, plugin, name, EnvPluginEnv)
		}
	}
	return err
}

// named reports whether the operator grants a variable to a plugin by
// SERVE_TRACING_PLUGIN_ENV.
func (s *Settings) named(plugin, variable string) bool {
	return wire.DeclaredBy(slices.Concat(s.PluginEnv[EveryPlugin], s.PluginEnv[plugin]), variable) != ""
}

// withheld reports whether lock-down keeps a variable from a plugin.
func (s *Settings) withheld(plugin, variable string) bool {
	return s.Lockdown && !wire.BaseVariable(variable) && !s.named(plugin, variable)
}

// These variables set limits of the Go runtime in a plugin.
const (
	VarMemoryLimit = "GOMEMLIMIT"
	VarMaxProcs    = "GOMAXPROCS"
)

// Limit is the value of a variable for a plugin's Go runtime.
type Limit struct {
	Value string
	// Setting is the operator's variable for the limit. Default is true if this variable is
	// unset, so that Value is the host's default.
	Setting string
	Default bool
}

// Limits returns the variables that limit the Go runtime in a plugin, by name. The
// plugin starts with these variables.
func (s *Settings) Limits(name string) map[string]Limit {
	limits := map[string]Limit{}
	if bytes, ok := byName(s.PluginMemoryLimit, name); ok {
		limits[VarMemoryLimit] = Limit{Value: strconv.FormatInt(bytes, 10), Setting: EnvPluginMemoryLimit}
	}
	if n, ok := byName(s.PluginMaxProcs, name); ok {
		limits[VarMaxProcs] = Limit{Value: strconv.Itoa(n), Setting: EnvPluginMaxProcs}
	} else if !s.named(name, VarMaxProcs) {
		limits[VarMaxProcs] = Limit{Value: strconv.Itoa(DefaultMaxProcs()), Setting: EnvPluginMaxProcs, Default: true}
	}
	return limits
}

// DefaultMaxProcs returns the default of GOMAXPROCS in a plugin: a quarter of the
// GOMAXPROCS of this process, at least 1. The other CPUs are for serving. With 1, the
// plugin never wakes a second thread, which would cost more than the work on a batch.
func DefaultMaxProcs() int { return max(1, runtime.GOMAXPROCS(0)/4) }

// byName returns the value for the plugin name. If there is none, it returns the value
// for all plugins, which has the key "".
func byName[T any](values map[string]T, name string) (T, bool) {
	if value, ok := values[name]; ok {
		return value, true
	}
	value, ok := values[""]
	return value, ok
}
