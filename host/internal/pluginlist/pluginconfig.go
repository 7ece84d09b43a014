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

// load returns the text of the configuration, or nil if there is none.
func (c Configuration) load() ([]byte, error) {
	if c.File == "" {
		return c.Document, nil
	}
	document, err := yamlfile.Read(c.File, mostConfigBytes)
	if err == nil && c.Pick != nil {
		document, err = c.Pick(document)
	}
	if err != nil {
		return nil, c.explain(err)
	}
	return document, nil
}

// explain adds the file of the configuration to an error. It returns nil if err is nil.
func (c Configuration) explain(err error) error {
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
	return parseItems(EnvPluginConfig, text, func(item string, configs map[string]Configuration) error {
		name, path, _ := strings.Cut(item, "=")
		_, twice := configs[name]
		switch {
		case name == "" || path == "":
			return fmt.Errorf("must be NAME=FILE, with the name of a plugin of %s", EnvPlugins)
		case strings.Contains(path, "="):
			return errors.New("has two equals signs; write one in a path as %3D")
		case twice:
			return fmt.Errorf("plugin %q has a file already", name)
		}
		configs[name] = Configuration{File: unescape.Replace(path)}
		return nil
	})
}

// validateConfigs returns an error for each configuration that is too large, or is for
// a plugin that this host does not configure. If the list is empty, it checks nothing.
func validateConfigs(configs map[string]Configuration, list []Entry) error {
	if len(list) == 0 {
		return nil
	}
	var errs []error
	for _, name := range sortedKeys(configs) {
		switch c := configs[name]; {
		case c.File != "" && c.Document != nil:
			errs = append(errs, fmt.Errorf("%s: plugin %q has a configuration file, %q, and a configuration text; set one of them", EnvPluginConfig, name, c.File))
		case len(c.Document) > mostConfigBytes:
			errs = append(errs, fmt.Errorf("%s: the configuration of plugin %q has %d bytes; want at most %d", EnvPluginConfig, name, len(c.Document), mostConfigBytes))
		}
	}
	return errors.Join(append(errs, namesOfList(EnvPluginConfig, configs, list, "this host does not configure it; give the file to the plugin itself (--config)"))...)
}
