package servicefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// MostBytes is the largest service file, and the most that a host reads of a
// plugin's document too.
const MostBytes = 1 << 20

// Read reads the file at path to its end, unless it has none: a named pipe
// would block, and would be empty the next time.
func Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("service file %q: there is no such file; create it, or correct its path", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("service file %q: this process may not read it; see its owner and mode, and those of its folders", path)
	case err != nil:
		return nil, fmt.Errorf("service file %q: %w", path, err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("service file %q: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("service file %q: this is no regular file (%v), and would be read more than once; name one", path, info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(f, MostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("service file %q: %w", path, err)
	}
	if len(data) > MostBytes {
		return nil, fmt.Errorf("service file %q: it has %d bytes; a service file has at most %d", path, max(info.Size(), MostBytes+1), MostBytes)
	}
	return data, nil
}

// File is a service file that was read, with what is right in it. It is not safe
// for concurrent use.
type File struct {
	// Name is the path that it was read from.
	Name string
	// Warnings are what it has and nothing here has a use for, one sentence each,
	// with its place.
	Warnings []string

	env    func(string) string
	values []value
	// plugins are the names below tracing_config.plugins, in order.
	plugins []plugin
	apps    []App
	said    []saidOf // of the applications
	faults  []*FaultError
}

// value is what the file says of one key.
type value struct {
	key    *Key
	path   string // with the plugin's name
	plugin string // empty for what is no plugin's
	text   string // as the variable has it
	at     *yaml.Node
}

// plugin is one of tracing_config.plugins.
type plugin struct {
	name   string
	at     *yaml.Node // its name
	config *yaml.Node // its document, nil for none
}

// Err joins all faults, in the order of the file, each a *FaultError; nil if there is
// none.
func (f *File) Err() error {
	slices.SortStableFunc(f.faults, func(a, b *FaultError) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	errs := make([]error, len(f.faults))
	for i, fault := range f.faults {
		errs[i] = fault
	}
	return errors.Join(errs...)
}

// fail adds a fault at a node.
func (f *File) fail(at *yaml.Node, format string, args ...any) {
	f.faults = append(f.faults, f.fault(at, fmt.Sprintf(format, args...)))
}

func (f *File) fault(at *yaml.Node, text string) *FaultError {
	// A node that stands for nothing, as behind a lone colon, may have no place.
	return &FaultError{File: f.Name, Line: max(1, at.Line), Column: max(1, at.Column), Text: text}
}

// Enabled is what the file says of tracing's switch; there is false where it
// says nothing.
func (f *File) Enabled() (on, there bool) {
	at := f.find(pathEnabled)
	if at < 0 {
		return false, false
	}
	return f.values[at].text == "true", true
}

// SpanFiles tells whether the file wants tracing and names no plugin.
func (f *File) SpanFiles() bool {
	on, _ := f.Enabled()
	return on && f.find(pathExporter) < 0
}

func (f *File) find(path string) int {
	return slices.IndexFunc(f.values, func(v value) bool { return v.path == path })
}

// Plugins are the names of the plugins that the file says something of, in the
// file's order.
func (f *File) Plugins() []string {
	names := make([]string, len(f.plugins))
	for i, p := range f.plugins {
		names[i] = p.name
	}
	return names
}

// Document is the configuration document of a plugin, YAML by itself, with its
// values in the lines of the file where it can be; nil if it has none. A folder that is not empty is put into it as the console plugin's
// output, unless the document has one.
func (f *File) Document(name, folder string) []byte {
	config := f.config(name)
	if folder != "" {
		config = withOutput(config, folder)
	}
	if config == nil {
		return nil
	}
	return inPlace(config)
}

// HasOutput tells whether a plugin's document says where the console plugin
// writes.
func (f *File) HasOutput(name string) bool {
	is := f.config(name)
	for _, key := range []string{"exporter", "output"} {
		is = child(is, key)
	}
	return is != nil
}

func (f *File) config(name string) *yaml.Node {
	for _, p := range f.plugins {
		if p.name == name {
			return p.config
		}
	}
	return nil
}

// Drop forgets a plugin, for err, which becomes a fault at its name, or only a
// warning.
func (f *File) Drop(name string, err error, warn bool) {
	for _, p := range f.plugins {
		fault := f.fault(p.at, f.inKeys(err.Error(), pathPlugins+"."+name))
		switch {
		case p.name != name:
		case warn:
			f.Warnings = append(f.Warnings, fault.Error())
		default:
			f.faults = append(f.faults, fault)
		}
	}
	f.plugins = slices.DeleteFunc(f.plugins, func(p plugin) bool { return p.name == name })
	f.values = slices.DeleteFunc(f.values, func(v value) bool { return v.plugin == name })
}

// Try has each value read by itself, as if the environment had its variable and
// no other. What read says against it is a fault at its place, and the value is
// forgotten.
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
		for _, err := range leaves(err) {
			f.fail(v.at, "%s", f.inKeys(err.Error(), v.path))
		}
		return err != nil
	})
}

// item is the value as its variable has it, with the plugin's name in front
// where it is one of several.
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

// Getenv is the environment with the file under it.
func (f *File) Getenv(variable string) string {
	if f.FromEnv(variable) {
		return f.join(variable, f.env(variable))
	}
	text, _ := f.of(variable)
	return text
}

// FromEnv tells whether the environment has a variable.
func (f *File) FromEnv(variable string) bool { return strings.TrimSpace(f.env(variable)) != "" }

// of is the file's value of a variable, with where it is from; empty where it
// has none, or the environment has another variable that says the same.
func (f *File) of(variable string) (text string, from *value) {
	on, there := f.Enabled()
	if variable == EnvPlugins && there && (!on || f.SpanFiles()) {
		if !on {
			return "", nil
		}
		return DefaultPlugin, &f.values[f.find(pathEnabled)]
	}
	var items []string
	for i, v := range f.values {
		if v.key.Variable != variable || v.text == "" || v.key.over != nil && v.key.over(f.env) != "" {
			continue
		}
		items = append(items, v.item())
		if from == nil {
			from = &f.values[i]
		}
	}
	return strings.Join(items, ","), from
}

// DefaultPlugin is the plugin that runs where the file wants tracing and names
// none.
const DefaultPlugin = "console"

// join adds to an environment's list by plugin those of the file that it does
// not name. A value of it for all plugins goes over the file's.
func (f *File) join(variable, own string) string {
	items := []string{own}
	for _, v := range f.values {
		if v.key.Variable == variable && v.key.join != "" && !names(own, v.key.join, v.plugin) {
			items = append(items, v.item())
		}
	}
	return strings.Join(items, ",")
}

// names tells whether a list by plugin has an item for one, or for all by none.
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

// Place makes faults of the leaves of err that are about a variable which has
// the file's value, and gives the others.
func (f *File) Place(err error) error {
	var errs []error
	for _, leaf := range leaves(err) {
		variable := variableOf.FindString(leaf.Error())
		_, from := f.of(variable)
		if from == nil || f.FromEnv(variable) {
			errs = append(errs, leaf)
			continue
		}
		f.fail(from.at, "%s", f.inKeys(leaf.Error(), from.path))
	}
	return errors.Join(errs...)
}

// variableOf is how the errors of those who read variables begin.
var variableOf = regexp.MustCompile(`^[A-Z][A-Z0-9_]+`)

// variableIn is a variable in running text.
var variableIn = regexp.MustCompile(`\b(SERVE|OTEL)(_[A-Z0-9]+)+\b`)

// inKeys writes a text about variables in the file's own words: path for the one
// that it begins with, and the keys of the others, as far as their values are
// the file's.
func (f *File) inKeys(text, path string) string {
	text = text[len(variableOf.FindString(text)):]
	return path + variableIn.ReplaceAllStringFunc(text, func(variable string) string {
		if _, from := f.of(variable); from != nil && from.key.join == "" && !f.FromEnv(variable) {
			return from.path
		}
		return variable
	})
}

// leaves are the errors that were joined, in their order.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, leaves(err)...)
	}
	return all
}
