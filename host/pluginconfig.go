package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// PluginConfig is the configuration of one plugin: a document in YAML or JSON,
// which the host passes on without looking into it. One of File and Document is
// set; with none the plugin gets no document.
type PluginConfig struct {
	// File is the path of the document. It is read anew each time the plugin is
	// configured, so a file that changes is seen by the plugin's next process.
	// A file that is missing, no regular file, or larger than 1 MiB keeps the
	// plugin from being ready; it is tried again. A plain OTLP receiver
	// takes no document: with one it is never ready.
	File string
	// Pick takes the document out of what stands in File, a part of which is
	// this plugin's: it is called each time File was read, one call at a time
	// for a plugin. An empty document is none; an error keeps the plugin from
	// being ready. Nil: the document is all of File.
	Pick func(file []byte) (document []byte, err error)
	// Document is the document itself, at most 1 MiB. It must not change after
	// New.
	Document []byte
}

// mostConfigBytes is the largest document.
const mostConfigBytes = 1 << 20

// load gives the document, nil for none.
func (c PluginConfig) load() ([]byte, error) {
	if c.File == "" {
		return c.Document, nil
	}
	document, err := readConfig(c.File)
	if err == nil && c.Pick != nil {
		document, err = c.Pick(document)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file %q: %w", c.File, err)
	}
	return document, nil
}

// readConfig reads a file to its end, unless it has none: a named pipe would
// block, and would be empty the next time.
func readConfig(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such file; create it, or correct its path")
	case errors.Is(err, fs.ErrPermission):
		return nil, errors.New("this process may not read it; see its owner and mode, and those of its folders")
	case err != nil:
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("this is no regular file (%v); name a file with a YAML or JSON document", info.Mode().Type())
	}
	document, err := io.ReadAll(io.LimitReader(f, mostConfigBytes+1))
	if err != nil {
		return nil, err
	}
	if len(document) > mostConfigBytes {
		return nil, fmt.Errorf("it has %d bytes; a plugin's configuration has at most %d", max(info.Size(), mostConfigBytes+1), mostConfigBytes)
	}
	return document, nil
}

// parsePluginConfigs reads SERVE_TRACING_PLUGIN_CONFIG. All faults are reported
// at once. It looks at no file.
func parsePluginConfigs(text string) (map[string]PluginConfig, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var errs []error
	configs := map[string]PluginConfig{}
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
			configs[name] = PluginConfig{File: unescape.Replace(path)}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return configs, nil
}

// validateConfigs holds the configurations against the list of plugins. With
// an empty list, which switches everything off, none is looked at.
func validateConfigs(configs map[string]PluginConfig, list []entry) error {
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
		case list[at].attached:
			fail("plugin %q is attached to (%s): this host does not configure it; give the file to the plugin itself (--config)", name, list[at].where)
		case c.File != "" && c.Document != nil:
			fail("plugin %q has a file, %q, and a document; give it one of them", name, c.File)
		case len(c.Document) > mostConfigBytes:
			fail("the document of plugin %q has %d bytes; it may have %d", name, len(c.Document), mostConfigBytes)
		}
	}
	return errors.Join(errs...)
}
