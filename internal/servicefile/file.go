package servicefile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// Read returns the content of the regular file at path, at most yamlfile.MaxBytes.
func Read(path string) ([]byte, error) {
	data, err := yamlfile.Read(path, yamlfile.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("service file %q: %w", path, err)
	}
	return data, nil
}

// File holds the valid values of a service file. Parse makes a File. It is not safe for
// concurrent use.
type File struct {
	// Name is the path of the file.
	Name string
	// Warnings describe keys that have no effect. Each is one sentence, with the place in the
	// file.
	Warnings []string
	// Apps are the applications in the file, in its order.
	Apps []App

	env     func(string) string
	values  []value
	plugins []plugin // plugins below tracing_config.plugins, in the order of the file
	faults  faults
}

// value is the value of a key in the file.
type value struct {
	key    *Key
	path   string     // path of the key, with the plugin's name and the indices of list items
	plugin string     // the plugin's name; empty for a key that is not below a plugin
	text   string     // the value, in the form of the variable
	at     *yaml.Node // node of the value
}

// plugin is an entry below tracing_config.plugins.
type plugin struct {
	name   string
	at     *yaml.Node // node of the plugin's name
	config *yaml.Node // node of the plugin's configuration, nil if it has none
}

// Err returns all errors, joined in the order of the file, each a *FaultError. It returns
// nil if there are none.
func (f *File) Err() error { return f.faults.err() }

// Enabled returns the value of tracing_config.enabled. set reports whether the file has
// this key.
func (f *File) Enabled() (on, set bool) {
	v := f.find(pathEnabled)
	return v != nil && v.text == "true", v != nil
}

// SpanFiles reports whether the file enables tracing and names no plugin.
func (f *File) SpanFiles() bool {
	on, _ := f.Enabled()
	return on && f.find(pathExporter) == nil && f.find(pathFunction) == nil
}

func (f *File) find(path string) *value {
	i := slices.IndexFunc(f.values, func(v value) bool { return v.path == path })
	if i < 0 {
		return nil
	}
	return &f.values[i]
}

// Plugins returns the names of the plugins in the file, in the order of the file.
func (f *File) Plugins() []string {
	names := make([]string, len(f.plugins))
	for i, p := range f.plugins {
		names[i] = p.name
	}
	return names
}

// Document returns the configuration of a plugin as a YAML document of its own, or nil if the
// plugin has none. Its values are in the same lines as in the file. If folder is not empty, it
// becomes the setting exporter.output of the console plugin, unless the configuration already
// has this setting.
func (f *File) Document(name, folder string) []byte {
	config := f.config(name)
	if folder != "" && !f.HasOutput(name) {
		config = with(config, "exporter", with(child(config, "exporter"), "output", textNode(folder)))
	}
	if config == nil {
		return nil
	}
	return yamlfile.Flow(config)
}

// HasOutput reports whether the configuration of a plugin has exporter.output, a setting
// of the console plugin.
func (f *File) HasOutput(name string) bool {
	return child(child(f.config(name), "exporter"), "output") != nil
}

// config returns the node of the configuration of a plugin, or nil if the plugin has none.
func (f *File) config(name string) *yaml.Node {
	for _, p := range f.plugins {
		if p.name == name {
			return p.config
		}
	}
	return nil
}

// child returns the value of a key of a mapping. It returns nil if node is no mapping or does not
// have the key, and for a value that is null.
func child(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key && !isNull(node.Content[i+1]) {
			return node.Content[i+1]
		}
	}
	return nil
}

// with returns a copy of a mapping in which the key has the value. For nil, it returns a mapping
// with only this key. It returns any other node unchanged, because the plugin will refuse it.
func with(node *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	changed := &yaml.Node{Kind: yaml.MappingNode}
	if node != nil {
		if node.Kind != yaml.MappingNode {
			return node
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value != key {
				changed.Content = append(changed.Content, node.Content[i], node.Content[i+1])
			}
		}
	}
	changed.Content = append(changed.Content, textNode(key), value)
	return changed
}

// Drop removes a plugin. It adds err, with the place of the plugin's name in the file, to the
// warnings if warn is true, otherwise to the errors.
func (f *File) Drop(name string, err error, warn bool) {
	i := slices.IndexFunc(f.plugins, func(p plugin) bool { return p.name == name })
	if i < 0 {
		return
	}
	at, text := f.plugins[i].at, f.inKeys(err.Error(), pathPlugins+"."+name)
	if warn {
		f.Warnings = append(f.Warnings, f.faults.at(at, text).Error())
	} else {
		f.faults.add(at, "%s", text)
	}
	f.plugins = slices.Delete(f.plugins, i, i+1)
	f.values = slices.DeleteFunc(f.values, func(v value) bool { return v.plugin == name })
}

// Try calls read for each value that has a variable. The function getenv then returns only the
// value of this variable. If read returns errors, they are added with the place of the value,
// and the value is removed.
func (f *File) Try(read func(getenv func(string) string) error) {
	f.values = slices.DeleteFunc(f.values, func(v value) bool {
		if v.key.Variable == "" {
			return false
		}
		err := read(func(name string) string {
			if name == v.key.Variable {
				return v.item()
			}
			return ""
		})
		for _, err := range Leaves(err) {
			f.faults.add(v.at, "%s", f.inKeys(err.Error(), v.path))
		}
		return err != nil
	})
}

// item returns the value in the form of its variable. If the variable is a list with items for
// single plugins, it adds the plugin's name to the beginning of each item.
func (v value) item() string {
	if v.key.join == "" {
		return v.text
	}
	var items []string
	for text := range strings.SplitSeq(v.text, ",") {
		items = append(items, v.plugin+v.key.join+text)
	}
	return strings.Join(items, ",")
}

// Getenv returns the value of a variable. The environment overrides the file.
func (f *File) Getenv(variable string) string {
	if f.FromEnv(variable) {
		return f.join(variable, f.env(variable))
	}
	text, _ := f.of(variable)
	return text
}

// FromEnv reports whether the environment has a variable.
func (f *File) FromEnv(variable string) bool { return strings.TrimSpace(f.env(variable)) != "" }

// of returns the file's value of a variable, and the key's value from which it comes. It returns
// nil for from if the file has no value, or if the environment has an OpenTelemetry variable for
// the same setting. For EnvPlugins it returns no value if the file disables tracing.
func (f *File) of(variable string) (text string, from *value) {
	on, set := f.Enabled()
	if variable == EnvPlugins && set && (!on || f.SpanFiles()) {
		if !on {
			return "", nil
		}
		return DefaultPlugin, f.find(pathEnabled)
	}
	var items []string
	for i, v := range f.values {
		if v.key.Variable == "" || v.key.Variable != variable || v.text == "" || v.key.over != nil && v.key.over(f.env) != "" {
			continue
		}
		items = append(items, v.item())
		if from == nil {
			from = &f.values[i]
		}
	}
	return strings.Join(items, ","), from
}

// DefaultPlugin is the plugin that runs if the file enables tracing and names no plugin.
const DefaultPlugin = "console"

// join returns the value of a variable that is a list with items for single plugins. own is its
// value in the environment. join adds the file's items of the plugins for which own has no item.
// An item in own that applies to all plugins overrides all items of the file.
func (f *File) join(variable, own string) string {
	items := []string{own}
	for _, v := range f.values {
		if v.key.Variable == variable && v.key.join != "" && !names(own, v.key.join, v.plugin) {
			items = append(items, v.item())
		}
	}
	return strings.Join(items, ",")
}

// names reports whether a list has an item that applies to the plugin. Such an item begins with
// the plugin's name and then join, or has no name and applies to all plugins.
func names(list, join, plugin string) bool {
	if strings.TrimSpace(list) == "" {
		return false
	}
	for item := range strings.SplitSeq(list, ",") {
		name, _, named := strings.Cut(strings.TrimSpace(item), join)
		if !named || name == plugin {
			return true
		}
	}
	return false
}

// Place finds the errors in err that begin with the name of a variable. If the value of the
// variable is from the file, Place adds the error with the place of the value. It returns the
// other errors, joined.
func (f *File) Place(err error) error {
	var errs []error
	for _, leaf := range Leaves(err) {
		variable := variableOf.FindString(leaf.Error())
		_, from := f.of(variable)
		if from == nil || f.FromEnv(variable) {
			errs = append(errs, leaf)
			continue
		}
		f.faults.add(from.at, "%s", f.inKeys(leaf.Error(), from.path))
	}
	return errors.Join(errs...)
}

// variableOf matches the variable at the beginning of an error.
var variableOf = regexp.MustCompile(`^[A-Z][A-Z0-9_]+`)

// variableIn matches a variable in running text.
var variableIn = regexp.MustCompile(`\b(SERVE|OTEL)(_[A-Z0-9]+)+\b`)

// inKeys replaces the names of variables in an error text by the paths of keys, because the
// operator has written keys. path replaces the variable at the beginning. Any other variable is
// replaced if its value is from the file.
func (f *File) inKeys(text, path string) string {
	text = text[len(variableOf.FindString(text)):]
	return path + variableIn.ReplaceAllStringFunc(text, func(variable string) string {
		if _, from := f.of(variable); from != nil && from.key.join == "" && !f.FromEnv(variable) {
			return from.path
		}
		return variable
	})
}

// Leaves returns the errors that err joins, in their order. It looks into joined errors that
// are joined again. If err joins none, it returns err alone.
func Leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, Leaves(err)...)
	}
	return all
}
