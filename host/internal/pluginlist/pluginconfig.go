package pluginlist

import (
	"errors"
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// Configuration is the configuration of one plugin. PluginConfig in package host documents
// the fields.
type Configuration struct {
	File     string
	Pick     func(file []byte) (document []byte, err error)
	Document []byte
}

const mostConfigBytes = 1 << 20

// load returns the text of the configuration, nil for none.
func (c Configuration) load() ([]byte, error) {
	if c.File == "" {
		return c.Document, nil
	}
	document, err := yamlfile.Read(c.File, mostConfigBytes)
	if err == nil && c.Pick != nil {
		document, err = c.Pick(document)
	}
	if err != nil {
		return nil, c.describe(err)
	}
	return document, nil
}

// describe adds the origin of the configuration to an error. It returns nil if err is nil.
func (c Configuration) describe(err error) error {
	switch {
	case err == nil:
		return nil
	case c.File != "":
		return fmt.Errorf("configuration file %q: %w", c.File, err)
	}
	return fmt.Errorf("configuration: %w", err)
}

// ParseConfigs parses SERVE_TRACING_PLUGIN_CONFIG. It reports all faults at once and
// opens no file.
func ParseConfigs(text string) (map[string]Configuration, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var errs []error
	configs := map[string]Configuration{}
	for item := range strings.SplitSeq(text, ",") {
		name, path, _ := strings.Cut(strings.TrimSpace(item), "=")
		_, twice := configs[name]
		switch {
		case name == "" || path == "":
			errs = append(errs, fmt.Errorf("%s: entry %q: must be NAME=FILE, with the name of a plugin of %s", EnvPluginConfig, item, EnvPlugins))
		case strings.Contains(path, "="):
			errs = append(errs, fmt.Errorf("%s: entry %q: has two equals signs; write one in a path as %%3D", EnvPluginConfig, item))
		case twice:
			errs = append(errs, fmt.Errorf("%s: entry %q: plugin %q has a file already", EnvPluginConfig, item, name))
		default:
			configs[name] = Configuration{File: unescape.Replace(path)}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return configs, nil
}

// validateConfigs checks that each configuration is for a plugin in the list. With an empty
// list it checks nothing.
func validateConfigs(configs map[string]Configuration, list []Entry) error {
	if len(list) == 0 {
		return nil
	}
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{EnvPluginConfig}, args...)...))
	}
	for _, name := range sortedKeys(configs) {
		c := configs[name]
		switch at := indexOf(list, name); {
		case at < 0:
			errs = append(errs, noSuchPlugin(EnvPluginConfig, name, list))
		case list[at].Attached:
			fail("plugin %q is attached to (%s): this host does not configure it; give the file to the plugin itself (--config)", name, list[at].Where)
		case c.File != "" && c.Document != nil:
			fail("plugin %q has a configuration file, %q, and a configuration text; set one of them", name, c.File)
		case len(c.Document) > mostConfigBytes:
			fail("the configuration of plugin %q has %d bytes; want at most %d", name, len(c.Document), mostConfigBytes)
		}
	}
	return errors.Join(errs...)
}
