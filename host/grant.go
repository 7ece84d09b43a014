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

// explainUngranted adds to a plugin's refusal of its configuration that a variable
// in its words is set here and was not granted: to the plugin it is not set.
func (c *Config) explainUngranted(p plan, d description, err error) error {
	if err == nil {
		return nil
	}
	names := strings.FieldsFunc(err.Error(), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') })
	for _, kv := range c.Environ {
		name, _, _ := strings.Cut(kv, "=")
		_, granted := d.granted[name]
		switch {
		case granted || slices.Contains(p.environ, kv) || wire.HandshakeVariable(name) || !slices.Contains(names, name):
		case slices.Contains(d.withheld, name):
			return fmt.Errorf("%w (%s is set for this process, and lock-down keeps it from the plugin: add %s:%s to %s)", err, name, p.name, name, EnvPluginEnv)
		default:
			return fmt.Errorf("%w (%s is set for this process, but the plugin does not declare it and so does not get it: add it to the plugin's Spec.Env, or %s:%s to %s)",
				err, name, p.name, name, EnvPluginEnv)
		}
	}
	return err
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
