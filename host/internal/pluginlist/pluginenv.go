package pluginlist

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/internal/wire"
)

// EveryPlugin is the name that stands for all plugins in SERVE_TRACING_PLUGIN_ENV.
const EveryPlugin = "*"

const wantPattern = "a name, or a prefix of three characters or more that ends in an underscore, and a star"

// ParseEnv parses SERVE_TRACING_PLUGIN_ENV. It reports all faults at once.
func ParseEnv(text string) (map[string][]string, error) {
	return parseItems(EnvPluginEnv, text, func(item string, patterns map[string][]string) error {
		name, pattern, _ := strings.Cut(item, ":")
		switch {
		case name == "" || pattern == "":
			return fmt.Errorf("must be NAME:VARIABLE, with the name of a plugin of %s, or * for all", EnvPlugins)
		case name != EveryPlugin && !namePattern.MatchString(name):
			return fmt.Errorf("%q is no name of a plugin; write NAME:VARIABLE, or * for all", name)
		case !wire.ValidEnvPattern(pattern):
			return fmt.Errorf("variables %q: must be %s", pattern, wantPattern)
		}
		patterns[name] = append(patterns[name], pattern)
		return nil
	})
}

// ParseByName parses a setting that has one value for all plugins, NAME=VALUE for one
// plugin, or both. The value for all has the name "". It reports all faults at once.
func ParseByName[T any](variable, text, allowed string, parse func(string) (T, error)) (map[string]T, error) {
	return parseItems(variable, text, func(item string, values map[string]T) error {
		name, number, named := strings.Cut(item, "=")
		if !named {
			name, number = "", name
		}
		value, err := parse(number)
		_, twice := values[name]
		switch {
		case named && !namePattern.MatchString(name):
			return fmt.Errorf("%q is no name of a plugin; write VALUE, or NAME=VALUE", name)
		case err != nil:
			return fmt.Errorf("%q must be %s", number, allowed)
		case twice:
			return fmt.Errorf("there is one already for %s", forWhom(name))
		}
		values[name] = value
		return nil
	})
}

func forWhom(name string) string {
	if name == "" {
		return "all plugins"
	}
	return fmt.Sprintf("plugin %q", name)
}

// mostProcs bounds the GOMAXPROCS that an operator may set. No machine has so many
// CPUs.
const mostProcs = 1 << 16

// ParseProcs parses the GOMAXPROCS of a plugin. It returns an error for a number below
// 1 or above mostProcs.
func ParseProcs(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err == nil && (n < 1 || n > mostProcs) {
		err = strconv.ErrRange
	}
	return n, err
}

// notStarted is the end of the error for a setting of a plugin that another program
// starts.
const notStarted = "this host does not start it; set it where the plugin is started"

// validatePluginEnv returns an error for each faulty pattern of
// SERVE_TRACING_PLUGIN_ENV, and for each name that is not a plugin of the list.
func validatePluginEnv(s *Settings, list []Entry) error {
	errs := []error{namesOfList(EnvPluginEnv, s.PluginEnv, list, notStarted, EveryPlugin)}
	for _, name := range sortedKeys(s.PluginEnv) {
		for _, pattern := range s.PluginEnv[name] {
			if !wire.ValidEnvPattern(pattern) {
				errs = append(errs, fmt.Errorf("%s: variables %q of plugin %q: must be %s", EnvPluginEnv, pattern, name, wantPattern))
			}
		}
	}
	return errors.Join(errs...)
}

// validateLimits returns an error for each value of PluginMemoryLimit and
// PluginMaxProcs that is out of range, or is for a plugin that is not in the list.
func validateLimits(s *Settings, list []Entry) error {
	errs := []error{
		namesOfList(EnvPluginMemoryLimit, s.PluginMemoryLimit, list, notStarted, ""),
		namesOfList(EnvPluginMaxProcs, s.PluginMaxProcs, list, notStarted, ""),
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

// namesOfList returns an error for each name in a setting that is not a plugin of the
// list, unless others has the name. A plugin that another program starts is an error,
// too, which ends with the text attached. If the list is empty, namesOfList checks
// nothing.
func namesOfList[T any](variable string, values map[string]T, list []Entry, attached string, others ...string) error {
	if len(list) == 0 {
		return nil
	}
	var errs []error
	for _, name := range sortedKeys(values) {
		at := indexOf(list, name)
		switch {
		case slices.Contains(others, name):
		case at < 0:
			errs = append(errs, noSuchPlugin(variable, name, list))
		case list[at].Attached:
			errs = append(errs, fmt.Errorf("%s: plugin %q is attached to (%s): %s", variable, name, list[at].Where, attached))
		}
	}
	return errors.Join(errs...)
}

// noSuchPlugin returns the error for a name that is not in the list. It returns nil if
// the list has a folder, which may contain the plugin.
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
