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
	var out []string
	for _, kv := range c.Environ {
		variable, _, _ := strings.Cut(kv, "=")
		_, own := limits[variable]
		if !own && (wire.BaseVariable(variable) || c.named(name, variable)) && !wire.HandshakeVariable(variable) {
			out = append(out, kv)
		}
	}
	for _, variable := range sortedKeys(limits) {
		out = append(out, variable+"="+limits[variable])
	}
	return out
}

// grant gives the variables that a plugin gets by its declaration, or because
// the operator names them for it. Under lock-down a declaration grants nothing:
// the names of what it would have granted are withheld. A pattern that would
// name more than a family of variables is an error, and so is a declared value
// that is no text, which the contract can not carry.
func (c *Config) grant(plugin string, declared []string) (granted map[string]string, withheld []string, err error) {
	for _, pattern := range declared {
		if !wire.ValidEnvPattern(pattern) {
			return nil, nil, fmt.Errorf("the plugin asks for variables %q: must be %s", wire.Clip(pattern), wantPattern)
		}
	}
	granted = map[string]string{}
	limits := c.pluginLimits(plugin)
	for _, kv := range c.Environ {
		name, value, ok := strings.Cut(kv, "=")
		_, asked := wire.DeclaredBy(declared, name)
		named := c.named(plugin, name)
		if _, own := limits[name]; !ok || own || wire.HandshakeVariable(name) || !asked && !named {
			continue
		}
		text := utf8.ValidString(name) && utf8.ValidString(value)
		switch {
		case c.withheld(plugin, name):
			withheld = append(withheld, name)
		case text:
			granted[name] = value
		case asked:
			return nil, nil, fmt.Errorf("the plugin asks for variable %q, whose value is no UTF-8 text and can not be sent: correct it, or unset it", name)
		}
	}
	slices.Sort(withheld)
	return granted, slices.Compact(withheld), nil
}

// named tells whether the operator names a variable for a plugin.
func (c *Config) named(plugin, variable string) bool {
	_, ok := wire.DeclaredBy(slices.Concat(c.PluginEnv[everyPlugin], c.PluginEnv[plugin]), variable)
	return ok
}

// withheld tells whether lock-down keeps a variable from a plugin.
func (c *Config) withheld(plugin, variable string) bool {
	return c.Lockdown && !wire.BaseVariable(variable) && !c.named(plugin, variable)
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
