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

// File is a service file after Parse, with its valid values. It is not safe for
// concurrent use.
type File struct {
	// Name is the path of the file.
	Name string
	// Warnings describe keys without effect, one sentence each, with the place.
	Warnings []string
	// Apps are the applications in the file, in its order.
	Apps []App

	env     func(string) string
	values  []value
	plugins []plugin // plugins below tracing_config.plugins, in the order of the file
	faults  faults
}

type value struct {
	key    *Key
	path   string // path of the key, with the plugin's name and the indices of list items
	plugin string // the plugin's name, empty for a key outside of plugins
	text   string // the value, in the form of the variable
	at     *yaml.Node
}

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

// Document returns the configuration of a plugin as a document of its own, or nil. Its
// values are in the same lines as in the file. If folder is not empty, it becomes the
// output of the console plugin, unless the configuration already has an output.
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

func (f *File) config(name string) *yaml.Node {
	for _, p := range f.plugins {
		if p.name == name {
			return p.config
		}
	}
	return nil
}

// child returns the value of a key of a mapping, or nil.
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

// with returns a copy of a mapping, or of nil, with a value for a key. It returns any other
// node unchanged, because the plugin will refuse it.
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

// Drop removes a plugin, and adds err to the faults of the file, or to its warnings if warn
// is true. The place of err in the file is the plugin's name.
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

// Try calls read for each value that has a variable, with an environment that has only
// this variable. The errors of read become errors at the place of the value, and the value
// is removed.
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

// item returns the value in the form of its variable. If the variable is a list with
// items for single plugins, each item begins with the plugin's name.
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

// of returns the file's value of a variable, and its origin. It returns nothing if the
// file has no value, or if the environment has an OpenTelemetry variable for the same
// setting. It returns no plugins if the file disables tracing.
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

// join returns the value of a variable with items for single plugins: the items of the
// environment, and the file's items of all other plugins. A value for all plugins in the
// environment overrides the file.
func (f *File) join(variable, own string) string {
	items := []string{own}
	for _, v := range f.values {
		if v.key.Variable == variable && v.key.join != "" && !names(own, v.key.join, v.plugin) {
			items = append(items, v.item())
		}
	}
	return strings.Join(items, ",")
}

// names reports whether a list has an item that applies to the plugin: an item that begins
// with the plugin's name and join, or an item without a name, which applies to all.
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

// Place looks for errors in err that begin with a variable whose value is from the file. It
// adds each of them at the place of the value, and returns the other errors.
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

// inKeys replaces variables by keys in a text. The variable at the beginning becomes path.
// Another variable becomes its key if its value is from the file.
func (f *File) inKeys(text, path string) string {
	text = text[len(variableOf.FindString(text)):]
	return path + variableIn.ReplaceAllStringFunc(text, func(variable string) string {
		if _, from := f.of(variable); from != nil && from.key.join == "" && !f.FromEnv(variable) {
			return from.path
		}
		return variable
	})
}

// Leaves returns the joined errors, in their order.
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
