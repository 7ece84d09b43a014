package host

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/internal/wire"
)

// everyPlugin stands in SERVE_TRACING_PLUGIN_ENV for all plugins.
const everyPlugin = "*"

// wantPattern is what the name of variables may be.
const wantPattern = "a name, or a prefix of three characters or more that ends in an underscore, and a star"

// parsePluginEnv reads SERVE_TRACING_PLUGIN_ENV. All faults are reported at
// once.
func parsePluginEnv(text string) (map[string][]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var errs []error
	fail := func(item, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: entry %q: "+format, append([]any{EnvPluginEnv, item}, args...)...))
	}
	patterns := map[string][]string{}
	for item := range strings.SplitSeq(text, ",") {
		name, pattern, _ := strings.Cut(strings.TrimSpace(item), ":")
		switch {
		case name == "" || pattern == "":
			fail(item, "must be NAME:VARIABLE, with the name of a plugin of %s, or * for all", EnvPlugins)
		case name != everyPlugin && !namePattern.MatchString(name):
			fail(item, "%q is no name of a plugin; write NAME:VARIABLE, or * for all", name)
		case !wire.ValidEnvPattern(pattern):
			fail(item, "variables %q: must be %s", pattern, wantPattern)
		default:
			patterns[name] = append(patterns[name], pattern)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return patterns, nil
}

// parseByName reads a setting that is one value for all plugins, or NAME=VALUE
// for one of them, or both: the value for all has the name "". All faults are
// reported at once.
func parseByName[T any](variable, text, allowed string, parse func(string) (T, error)) (map[string]T, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var errs []error
	values := map[string]T{}
	for item := range strings.SplitSeq(text, ",") {
		name, number, named := strings.Cut(strings.TrimSpace(item), "=")
		if !named {
			name, number = "", name
		}
		value, err := parse(number)
		_, twice := values[name]
		switch {
		case named && !namePattern.MatchString(name):
			errs = append(errs, fmt.Errorf("%s: entry %q: %q is no name of a plugin; write VALUE, or NAME=VALUE", variable, item, name))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: entry %q: %q must be %s", variable, item, number, allowed))
		case twice:
			errs = append(errs, fmt.Errorf("%s: entry %q: there is one already for %s", variable, item, forWhom(name)))
		default:
			values[name] = value
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return values, nil
}

func forWhom(name string) string {
	if name == "" {
		return "all plugins"
	}
	return fmt.Sprintf("plugin %q", name)
}

// mostProcs is more than any machine has.
const mostProcs = 1 << 16

func parseProcs(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && (n < 1 || n > mostProcs) {
		err = strconv.ErrRange
	}
	return n, err
}

// validatePluginEnv holds SERVE_TRACING_PLUGIN_ENV against the list of plugins.
func (c Config) validatePluginEnv(list []entry) error {
	errs := []error{namesOfList(EnvPluginEnv, c.PluginEnv, list, everyPlugin)}
	for _, name := range sortedKeys(c.PluginEnv) {
		for _, pattern := range c.PluginEnv[name] {
			if !wire.ValidEnvPattern(pattern) {
				errs = append(errs, fmt.Errorf("%s: variables %q of plugin %q: must be %s", EnvPluginEnv, pattern, name, wantPattern))
			}
		}
	}
	return errors.Join(errs...)
}

// validateLimits does so with GOMEMLIMIT and GOMAXPROCS.
func (c Config) validateLimits(list []entry) error {
	errs := []error{
		namesOfList(EnvPluginMemoryLimit, c.PluginMemoryLimit, list, ""),
		namesOfList(EnvPluginMaxProcs, c.PluginMaxProcs, list, ""),
	}
	for _, name := range sortedKeys(c.PluginMemoryLimit) {
		if n := c.PluginMemoryLimit[name]; n < 1 {
			errs = append(errs, fmt.Errorf("%s: %d for %s: must be above zero", EnvPluginMemoryLimit, n, forWhom(name)))
		}
	}
	for _, name := range sortedKeys(c.PluginMaxProcs) {
		if n := c.PluginMaxProcs[name]; n < 1 || n > mostProcs {
			errs = append(errs, fmt.Errorf("%s: %d for %s: must be between 1 and %d", EnvPluginMaxProcs, n, forWhom(name), mostProcs))
		}
	}
	return errors.Join(errs...)
}

// namesOfList wants each name of a setting to be that of a plugin that this
// host starts, or all. With an empty list, which switches everything off, none
// is looked at.
func namesOfList[T any](variable string, values map[string]T, list []entry, all string) error {
	if len(list) == 0 {
		return nil
	}
	var errs []error
	for _, name := range sortedKeys(values) {
		at := indexOf(list, name)
		switch {
		case name == all:
		case at < 0:
			errs = append(errs, noSuchPlugin(variable, name, list))
		case list[at].attached:
			errs = append(errs, fmt.Errorf("%s: plugin %q is attached to (%s): this host does not start it; set it where the plugin is started", variable, name, list[at].where))
		}
	}
	return errors.Join(errs...)
}

// indexOf is where the plugin of a name stands in the list, or -1.
func indexOf(list []entry, name string) int {
	return slices.IndexFunc(list, func(e entry) bool { return !e.folder && e.name == name })
}

// noSuchPlugin is the fault of a name that no entry of the list has; it is none
// where a folder may bring the plugin.
func noSuchPlugin(variable, name string, list []entry) error {
	var names []string
	for _, e := range list {
		if e.isFolder() {
			return nil
		}
		names = append(names, e.name)
	}
	return fmt.Errorf("%s: there is no plugin %q; the plugins of %s are %s", variable, name, EnvPlugins, strings.Join(names, ", "))
}

// The variables that Go's runtime reads at its start.
const (
	varMemoryLimit = "GOMEMLIMIT"
	varMaxProcs    = "GOMAXPROCS"
)

// pluginLimits are the variables that a plugin starts with for its Go runtime.
func (c *Config) pluginLimits(name string) map[string]string {
	limits := map[string]string{}
	if bytes, ok := byName(c.PluginMemoryLimit, name); ok {
		limits[varMemoryLimit] = strconv.FormatInt(bytes, 10)
	}
	if n, ok := byName(c.PluginMaxProcs, name); ok {
		limits[varMaxProcs] = strconv.Itoa(n)
	} else if !c.named(name, varMaxProcs) {
		limits[varMaxProcs] = strconv.Itoa(defaultMaxProcs())
	}
	return limits
}

// defaultMaxProcs returns how many processors a plugin runs on by default: a
// quarter of the service's, at least one. On one processor, goroutines that hand
// work to each other wake no threads up, and a busy plugin leaves the others to
// the service.
func defaultMaxProcs() int { return max(1, runtime.GOMAXPROCS(0)/4) }

// byName is the value for a plugin, or that for all.
func byName[T any](values map[string]T, name string) (T, bool) {
	if value, ok := values[name]; ok {
		return value, true
	}
	value, ok := values[""]
	return value, ok
}

// cloned returns c with maps of its own, so that a caller of New may change its maps.
func (c Config) cloned() Config {
	c.PluginConfigs = maps.Clone(c.PluginConfigs)
	c.PluginEnv = maps.Clone(c.PluginEnv)
	c.PluginMemoryLimit = maps.Clone(c.PluginMemoryLimit)
	c.PluginMaxProcs = maps.Clone(c.PluginMaxProcs)
	return c
}
