package servicefile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/internal/spelling"
	"github.com/servetrace/servetrace/internal/yamlfile"
)

// Parse returns a service file with the content data. The environment env overrides the
// values of the file. The File has all valid values, and File.Err returns the errors.
func Parse(name string, data []byte, env func(string) string) *File {
	f := &File{Name: name, env: env, faults: faults{file: name}}
	root, err := yamlfile.Parse(data)
	switch syntax, isSyntax := errors.AsType[*yamlfile.Error](err); {
	case isSyntax:
		f.faults.add(&yaml.Node{Line: syntax.Line, Column: syntax.Column}, "%s", syntax.Text)
	case err != nil:
		f.faults.add(&yaml.Node{}, "%v", err)
	case root == nil:
		f.faults.add(&yaml.Node{}, "the file is empty; one without settings is {}")
	default:
		r := reader{f}
		r.section(root, "", "")
	}
	return f
}

const (
	noAlias = "an alias (*) is not allowed; write its value instead"
	noMerge = "a merge (<<) is not allowed; write its keys instead"
)

// reader reads the YAML nodes of a file, by the table of keys.
type reader struct{ f *File }

// section reads a mapping with keys of the table. pattern is the path in the form of the table,
// with NAME in place of a plugin's name, and [] in place of an index.
func (r reader) section(node *yaml.Node, path, pattern string) {
	known := below(pattern)
	if node.Kind != yaml.MappingNode {
		r.f.faults.add(node, "%s%s; want keys below it: %s", prefix(path), seen(node), strings.Join(known, ", "))
		return
	}
	for _, e := range r.entries(node, path) {
		at, like := dotted(path, e.key.Value), dotted(pattern, e.key.Value)
		switch {
		case slices.Contains(known, e.key.Value):
			r.read(e.value, at, like)
		case pattern == pathPlugins:
			r.plugin(e, at)
		default:
			r.unknown(e, at, like, known)
		}
	}
}

// read reads the value of a key that is in the table. The value is a single value, a list of
// items or a section. If it is null, the key counts as absent.
func (r reader) read(node *yaml.Node, path, pattern string) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Path == pattern })
	switch {
	case node.Kind == yaml.AliasNode:
		r.f.faults.add(node, "%s: %s", path, noAlias)
	case isNull(node):
	case i >= 0:
		r.value(node, path, &keys[i])
	case below(pattern+"[]") != nil:
		r.items(node, path, pattern+"[]")
	default:
		r.section(node, path, pattern)
	}
}

// value reads a single value, and adds it to the values of the file.
func (r reader) value(node *yaml.Node, path string, key *Key) {
	v := value{key: key, path: path, at: node}
	if strings.HasPrefix(key.Path, pathPlugins+".") {
		v.plugin = r.f.plugins[len(r.f.plugins)-1].name
	}
	ok := true
	switch key.Path {
	case pathDocument:
		if r.plain(node, path) {
			r.f.plugins[len(r.f.plugins)-1].config = node
		}
		return
	case pathUserConfig:
		v.text = string(r.json(node, path))
	default:
		v.text, ok = key.form.read(node)
	}
	if !ok {
		r.f.faults.add(node, "%s: %s; want %s", path, seen(node), key.form.says)
	} else if v.text != "" {
		r.f.values = append(r.f.values, v)
	}
}

// items reads the list of applications, or of the deployments of an application.
func (r reader) items(node *yaml.Node, path, pattern string) {
	if node.Kind != yaml.SequenceNode {
		r.f.faults.add(node, "%s: %s; want a list, whose items begin with \"- name: \"", path, seen(node))
		return
	}
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case item.Kind == yaml.AliasNode:
			r.f.faults.add(item, "%s: %s", at, noAlias)
		case pattern == pathApp:
			r.app(item, at)
		default:
			r.deployment(item, at)
		}
	}
}

// pluginName matches the names of plugins that the host accepts.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// plugin reads a plugin below tracing_config.plugins.
func (r reader) plugin(e entry, path string) {
	if !pluginName.MatchString(e.key.Value) {
		r.f.faults.add(e.key, "%s: %s is no name of a plugin; want letters, digits, dots, dashes and underscores, 63 at most", pathPlugins, seen(e.key))
		return
	}
	r.f.plugins = append(r.f.plugins, plugin{name: e.key.Value, at: e.key})
	r.read(e.value, path, dotted(pathPlugins, anyName))
}

// unknown adds the error or the warning for a key that is not in the table.
func (r reader) unknown(e entry, path, pattern string, known []string) {
	if other := foreignKey(pattern); other != nil {
		switch {
		case isEmpty(e.value):
		case other.fatal:
			r.f.faults.add(e.key, "%s: %s", path, other.why)
		default:
			r.f.Warnings = append(r.f.Warnings, r.f.faults.at(e.key, path+" has no effect: "+other.why).Error())
		}
		return
	}
	want := "; want one of " + strings.Join(known, ", ")
	if hint := meant(e.key.Value, known); hint != "" {
		want = "; did you mean " + hint + "?"
	}
	section := strings.TrimSuffix(path[:len(path)-len(e.key.Value)], ".")
	r.f.faults.add(e.key, "%sthere is no key %q%s", prefix(section), e.key.Value, want)
}

// meant returns the key that the operator probably meant by an unknown word: the same word in
// lower case, a key of another section with this name, the key whose variable the word is, or a
// key of the section with a similar name. It returns "" if there is none.
func meant(word string, known []string) string {
	if slices.Contains(known, strings.ToLower(word)) {
		return strings.ToLower(word)
	}
	for _, k := range keys {
		if last := k.Path[strings.LastIndexByte(k.Path, '.')+1:]; last == word || k.Variable == word {
			return k.Path
		}
	}
	return spelling.Nearest(word, known)
}

// below returns the names of the keys that are directly below a path in the table, in the order
// of the table. It does not return the placeholder NAME.
func below(pattern string) []string {
	var words []string
	for _, k := range keys {
		rest, ok := k.Path, true
		if pattern != "" {
			rest, ok = strings.CutPrefix(k.Path, pattern+".")
		}
		word, _, _ := strings.Cut(rest, ".")
		word = strings.TrimSuffix(word, "[]")
		if ok && word != anyName && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// entry is a key of a mapping with its value.
type entry struct{ key, value *yaml.Node }

// entries returns the entries of a mapping. If a key is repeated or is not a single word, it adds
// an error and omits the entry.
func (r reader) entries(node *yaml.Node, path string) []entry {
	var list []entry
	first := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		line, twice := first[key.Value]
		switch {
		case key.Kind == yaml.AliasNode:
			r.f.faults.add(key, "%s%s", prefix(path), noAlias)
		case key.Kind != yaml.ScalarNode:
			r.f.faults.add(key, "%sa key is %s; want a word", prefix(path), seen(key))
		case key.ShortTag() == "!!merge":
			r.f.faults.add(key, "%s%s", prefix(path), noMerge)
		case twice:
			r.f.faults.add(key, "%s: this key stands in line %d already", dotted(path, key.Value), line)
		default:
			first[key.Value] = key.Line
			list = append(list, entry{key, node.Content[i+1]})
		}
	}
	return list
}

// plain reports whether a value has no aliases, no merges and no repeated keys. It adds an error
// for each of them.
func (r reader) plain(node *yaml.Node, path string) bool {
	before := len(r.f.faults.list)
	switch node.Kind {
	case yaml.AliasNode:
		r.f.faults.add(node, "%s: %s", path, noAlias)
	case yaml.SequenceNode:
		for i, item := range node.Content {
			r.plain(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.MappingNode:
		for _, e := range r.entries(node, path) {
			r.plain(e.value, dotted(path, e.key.Value))
		}
	}
	return len(r.f.faults.list) == before
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// isEmpty reports whether a value is null, an empty text or an empty collection. Generated files
// often have such values, which mean that the key is not set.
func isEmpty(node *yaml.Node) bool {
	return isNull(node) || node.Kind != yaml.AliasNode && node.Value == "" && len(node.Content) == 0
}

// dotted returns the path of a key below a path.
func dotted(path, word string) string {
	if path == "" {
		return word
	}
	return path + "." + word
}

// prefix returns the beginning of an error text about a path.
func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}
