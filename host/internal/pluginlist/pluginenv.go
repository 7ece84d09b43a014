package pluginlist

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/internal/wire"
)

// EveryPlugin stands for all plugins in SERVE_TRACING_PLUGIN_ENV.
const EveryPlugin = "*"

const wantPattern = "a name, or a prefix of three characters or more that ends in an underscore, and a star"

// ParseEnv parses SERVE_TRACING_PLUGIN_ENV. It reports all faults at once.
func ParseEnv(text string) (map[string][]string, error) {
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
		case name != EveryPlugin && !namePattern.MatchString(name):
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

// ParseByName parses a setting that has one value for all plugins, NAME=VALUE for one
// plugin, or both. The value for all has the name "". It reports all faults at once.
func ParseByName[T any](variable, text, allowed string, parse func(string) (T, error)) (map[string]T, error) {
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

// mostProcs bounds the GOMAXPROCS of a plugin. No machine has so many CPUs.
const mostProcs = 1 << 16

// ParseProcs parses a value of GOMAXPROCS.
func ParseProcs(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && (n < 1 || n > mostProcs) {
		err = strconv.ErrRange
	}
	return n, err
}

// validatePluginEnv checks the patterns of SERVE_TRACING_PLUGIN_ENV, and that it only
// names plugins in the list.
func validatePluginEnv(s *Settings, list []Entry) error {
	errs := []error{namesOfList(EnvPluginEnv, s.PluginEnv, list, EveryPlugin)}
	for _, name := range sortedKeys(s.PluginEnv) {
		for _, pattern := range s.PluginEnv[name] {
			if !wire.ValidEnvPattern(pattern) {
				errs = append(errs, fmt.Errorf("%s: variables %q of plugin %q: must be %s", EnvPluginEnv, pattern, name, wantPattern))
			}
		}
	}
	return errors.Join(errs...)
}

// validateLimits checks the values of PluginMemoryLimit and PluginMaxProcs, and that
// both only name plugins in the list.
func validateLimits(s *Settings, list []Entry) error {
	errs := []error{
		namesOfList(EnvPluginMemoryLimit, s.PluginMemoryLimit, list, ""),
		namesOfList(EnvPluginMaxProcs, s.PluginMaxProcs, list, ""),
	}
	for _, name := range sortedKeys(s.PluginMemoryLimit) {
		if n := s.PluginMemoryLimit[name]; n < 1 {
			errs = append(errs, fmt.Errorf("%s: %d for %s: must be above zero", EnvPluginMemoryLimit, n, forWhom(name)))
		}
	}
	for _, name := range sortedKeys(s.PluginMaxProcs) {
		if n := s.PluginMaxProcs[name]; n < 1 || n > mostProcs {
			errs = append(errs, fmt.Errorf("%s: %d for %s: must be between 1 and %d", EnvPluginMaxProcs, n, forWhom(name), mostProcs))
		}
	}
	return errors.Join(errs...)
}

// namesOfList checks that each name of a setting means all plugins, or a plugin that this
// host starts. With an empty list it checks nothing.
func namesOfList[T any](variable string, values map[string]T, list []Entry, all string) error {
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
		case list[at].Attached:
			errs = append(errs, fmt.Errorf("%s: plugin %q is attached to (%s): this host does not start it; set it where the plugin is started", variable, name, list[at].Where))
		}
	}
	return errors.Join(errs...)
}

func indexOf(list []Entry, name string) int {
	return slices.IndexFunc(list, func(e Entry) bool { return !e.Folder && e.Name == name })
}

// noSuchPlugin returns an error if no entry of the list has the name. It returns nil if
// a folder may contain the plugin.
func noSuchPlugin(variable, name string, list []Entry) error {
	names := map[bool][]string{} // by Entry.Processor
	for _, e := range list {
		if e.isFolder() {
			return nil
		}
		names[e.Processor] = append(names[e.Processor], e.Name)
	}
	text := fmt.Sprintf("%s: there is no plugin %q; the plugins of %s are %s", variable, name, EnvPlugins, strings.Join(names[false], ", "))
	if len(names[true]) > 0 {
		text += ", and the processors are " + strings.Join(names[true], ", ")
	}
	return errors.New(text)
}
