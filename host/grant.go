package host

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/servetrace/servetrace/internal/wire"
)

// startEnviron is the environment that a plugin starts with: of the host's the
// base variables and those that the operator names, and then its limits, which
// win.
func (c *Config) startEnviron(name string) []string {
	limits := c.pluginLimits(name)
	patterns := slices.Concat(c.PluginEnv[everyPlugin], c.PluginEnv[name])
	var out []string
	for _, kv := range c.Environ {
		variable, _, _ := strings.Cut(kv, "=")
		_, own := limits[variable]
		_, named := wire.DeclaredBy(patterns, variable)
		if !own && (named || wire.BaseVariable(variable)) && !wire.HandshakeVariable(variable) {
			out = append(out, kv)
		}
	}
	for _, variable := range sortedKeys(limits) {
		out = append(out, variable+"="+limits[variable])
	}
	return out
}

// grant gives the variables of environ that the patterns name. A pattern that
// would name more than a family of variables is an error, and so is a value that
// is no text, which the contract can not carry.
func grant(patterns, environ []string) (map[string]string, error) {
	granted := map[string]string{}
	for _, pattern := range patterns {
		if !wire.ValidEnvPattern(pattern) {
			return nil, fmt.Errorf("the plugin asks for variables %q: must be a name, or a prefix of three characters or more that ends in an underscore, and a star", pattern)
		}
	}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if _, declared := wire.DeclaredBy(patterns, name); !ok || !declared {
			continue
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("the plugin asks for variable %q, whose value is no UTF-8 text and can not be sent: correct it, or unset it", name)
		}
		granted[name] = value
	}
	return granted, nil
}

func sortedKeys[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}

// runtimeDirs are the folders of environ made for sockets.
func runtimeDirs(environ []string) []string {
	for _, kv := range environ {
		if dir, ok := strings.CutPrefix(kv, "XDG_RUNTIME_DIR="); ok && dir != "" {
			return []string{dir}
		}
	}
	return nil
}

// version is this module's, as the build knows it.
func version() string {
	const module = "github.com/servetrace/servetrace"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}
