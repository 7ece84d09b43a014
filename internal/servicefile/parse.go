package servicefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/servetrace/servetrace/internal/spelling"
)

// Parse reads the bytes of a service file that lies under an environment. The
// File has everything that is right in them; Err has what is wrong.
func Parse(name string, data []byte, env func(string) string) *File {
	f := &File{Name: name, env: env}
	root, fault := f.document(data)
	if fault != nil {
		f.faults = append(f.faults, fault)
		return f
	}
	f.section(root, "", "")
	return f
}

// document gives the one document of the file.
func (f *File) document(data []byte) (*yaml.Node, *FaultError) {
	if at, ok := wrongByte(data); ok {
		line, column := placeOf(data, at)
		return nil, &FaultError{f.Name, line, column, fmt.Sprintf("the byte 0x%02x is no text; write the file in UTF-8", data[at])}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) || err == nil && isNull(first.Content[0]) {
		return nil, &FaultError{f.Name, 1, 1, "the file is empty; one without settings is {}"}
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			return nil, f.fault(&second, "a second document begins; a service file is one")
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, syntax(f.Name, data, err)
	}
	return first.Content[0], nil
}

// Syntax says where a plugin's document is no YAML, nil where it is. Nothing in
// it is what the document says. JSON is not all YAML: it is another's to tell.
func Syntax(name string, data []byte) *FaultError {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			fault := syntax(name, data, err)
			if fault.Text == noAlias {
				fault.Text = "a value that begins with * and is no alias of an anchor; put it in quotes"
			}
			return fault
		}
	}
}

// wrongByte finds what is no text.
func wrongByte(data []byte) (at int, found bool) {
	for at := 0; at < len(data); {
		r, width := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && width == 1 || r < ' ' && r != '\t' && r != '\n' && r != '\r' {
			return at, true
		}
		at += width
	}
	return 0, false
}

// placeOf gives the line and the column of a byte, in characters.
func placeOf(data []byte, at int) (line, column int) {
	begin := bytes.LastIndexByte(data[:at], '\n') + 1
	return 1 + bytes.Count(data[:at], []byte("\n")), 1 + utf8.RuneCount(data[begin:at])
}

// syntaxError is what the YAML parser says; it has no columns, and no line for
// the first one.
var syntaxError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// syntax gives the parser's error the place where the line begins that it is
// about, or where a tab or an alias stands.
func syntax(name string, data []byte, err error) *FaultError {
	line, text := 1, err.Error()
	if m := syntaxError.FindStringSubmatch(text); m != nil {
		if m[1] != "" {
			line, _ = strconv.Atoi(m[1]) // its digits were matched, and it is 1 where they are too many
		}
		text = m[2]
	}
	if strings.HasPrefix(text, "did not find expected") {
		line++ // the parser counts from nought, the scanner from one
	}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		if at := bytes.Index(data, []byte("*"+m[1])); at >= 0 {
			line, column := placeOf(data, at)
			return &FaultError{name, line, column, noAlias}
		}
	}
	lines := strings.Split(string(data), "\n")
	line = min(max(1, line), len(lines))
	for line > 1 && strings.TrimSpace(lines[line-1]) == "" { // the file ends too early
		line--
	}
	indent := len(lines[line-1]) - len(strings.TrimLeft(lines[line-1], " \t\r"))
	if tab := strings.IndexByte(lines[line-1][:indent], '\t'); tab >= 0 {
		return &FaultError{name, line, tab + 1, "the line is indented by a tab; YAML takes spaces only"}
	}
	return &FaultError{name, line, indent + 1, "this is no YAML: " + text + "; see this line and those around it"}
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

const (
	noAlias = "an alias (*) is not taken; write out what it stands for"
	noMerge = "a merge (<<) is not taken; write the keys out"
)

// section reads a mapping of which the table knows the keys. pattern is path
// with NAME for a plugin's name.
func (f *File) section(node *yaml.Node, path, pattern string) {
	known := below(pattern)
	switch {
	case node.Kind == yaml.AliasNode:
		f.fail(node, "%s%s", prefix(path), noAlias)
		return
	case isNull(node): // as if the key were not there
		return
	case node.Kind != yaml.MappingNode:
		f.fail(node, "%s%s; want keys below it: %s", prefix(path), seen(node), strings.Join(known, ", "))
		return
	}
	for _, e := range f.entries(node, path) {
		word := e.key.Value
		at, like := dotted(path, word), dotted(pattern, word)
		switch {
		case like == wordApps:
			f.applications(e.value)
		case slices.Contains(known, word):
			f.entry(e, at, like)
		case pattern == pathPlugins:
			f.plugin(e, at, dotted(pattern, anyName))
		default:
			f.unknown(e, at, like, known)
		}
	}
}

// entry is a key of the table, or a section of it.
func (f *File) entry(e entry, path, pattern string) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Path == pattern })
	if i < 0 {
		f.section(e.value, path, pattern)
		return
	}
	switch {
	case pattern == pathDocument:
		if f.plain(e.value, path) && !isNull(e.value) {
			f.plugins[len(f.plugins)-1].config = e.value
		}
		return
	case e.value.Kind == yaml.AliasNode:
		f.fail(e.value, "%s: %s", path, noAlias)
		return
	case isNull(e.value): // as an empty variable
		return
	}
	text, ok := keys[i].form.read(e.value)
	if !ok {
		f.fail(e.value, "%s: %s; want %s", path, seen(e.value), keys[i].form.says)
		return
	}
	v := value{key: &keys[i], path: path, text: text, at: e.value}
	if strings.HasPrefix(pattern, pathPlugins+".") {
		v.plugin = f.plugins[len(f.plugins)-1].name
	}
	if text != "" {
		f.values = append(f.values, v)
	}
}

// pluginName is what the host takes for one.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// plugin is one of tracing_config.plugins.
func (f *File) plugin(e entry, path, pattern string) {
	if !pluginName.MatchString(e.key.Value) {
		f.fail(e.key, "%s: %s is no name of a plugin; want letters, digits, dots, dashes and underscores, 63 at most", pathPlugins, seen(e.key))
		return
	}
	f.plugins = append(f.plugins, plugin{name: e.key.Value, at: e.key})
	f.section(e.value, path, pattern)
}

// unknown is a key that the table does not have.
func (f *File) unknown(e entry, path, pattern string, known []string) {
	if other, ok := foreign[pattern]; ok {
		switch {
		case isEmpty(e.value):
		case other.fatal:
			f.fail(e.key, "%s: %s", path, other.why)
		default:
			f.Warnings = append(f.Warnings, f.fault(e.key, path+" has no effect: "+other.why).Error())
		}
		return
	}
	text := fmt.Sprintf("%sthere is no key %q", prefix(strings.TrimSuffix(path[:len(path)-len(e.key.Value)], ".")), e.key.Value)
	if hint := meant(e.key.Value, known); hint != "" {
		f.fail(e.key, "%s; did you mean %s?", text, hint)
		return
	}
	f.fail(e.key, "%s; want one of %s", text, strings.Join(known, ", "))
}

// meant is what an unknown key may have been meant to be: another of the same
// section, one that stands elsewhere, or the key of a variable.
func meant(word string, known []string) string {
	if slices.Contains(known, strings.ToLower(word)) {
		return strings.ToLower(word)
	}
	for _, k := range Keys() {
		if last := k.Path[strings.LastIndexByte(k.Path, '.')+1:]; last == word || k.Variable == word {
			return k.Path
		}
	}
	return spelling.Nearest(word, known)
}

// below are the words of the table right below a path, in its order; without
// NAME.
func below(pattern string) []string {
	var words []string
	for _, k := range Keys() {
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

// entry is a key of a mapping with what stands behind it.
type entry struct{ key, value *yaml.Node }

// entries are those of a mapping whose keys are words and stand there once; the
// others are faults.
func (f *File) entries(node *yaml.Node, path string) []entry {
	var list []entry
	first := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		line, twice := first[key.Value]
		switch {
		case key.Kind == yaml.AliasNode:
			f.fail(key, "%s%s", prefix(path), noAlias)
		case key.Kind != yaml.ScalarNode:
			f.fail(key, "%sa key is %s; want a word", prefix(path), seen(key))
		case key.ShortTag() == "!!merge":
			f.fail(key, "%s%s", prefix(path), noMerge)
		case twice:
			f.fail(key, "%s: this key stands in line %d already", dotted(path, key.Value), line)
		default:
			first[key.Value] = key.Line
			list = append(list, entry{key, node.Content[i+1]})
		}
	}
	return list
}

// plain tells whether a document has nothing that is not taken, in it or below.
func (f *File) plain(node *yaml.Node, path string) bool {
	before := len(f.faults)
	switch node.Kind {
	case yaml.AliasNode:
		f.fail(node, "%s: %s", path, noAlias)
	case yaml.SequenceNode:
		for i, item := range node.Content {
			f.plain(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.MappingNode:
		for _, e := range f.entries(node, path) {
			f.plain(e.value, dotted(path, e.key.Value))
		}
	}
	return len(f.faults) == before
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// isEmpty tells whether a value says nothing, as generated files often have it.
func isEmpty(node *yaml.Node) bool {
	return isNull(node) || node.Kind == yaml.ScalarNode && node.Value == "" ||
		node.Kind != yaml.AliasNode && node.Kind != yaml.ScalarNode && len(node.Content) == 0
}

func dotted(path, word string) string {
	if path == "" {
		return word
	}
	return path + "." + word
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// inPlace writes a part of a file as a document of its own, each value in the
// line that it has in the file, or behind it where the file has it in fewer: so
// that a fault in it is told with the file's line.
func inPlace(node *yaml.Node) []byte {
	data := encode(node)
	var written yaml.Node
	if err := yaml.Unmarshal(data, &written); err != nil {
		return data // cannot happen: it was just written
	}
	inFile := map[int]int{} // line of data: that of the file
	pairLines(written.Content[0], node, inFile)
	var out []byte
	at := 1
	for i, line := range bytes.SplitAfter(data, []byte("\n")) {
		for ; at < inFile[i+1]; at++ {
			out = append(out, '\n')
		}
		out = append(out, line...)
		at++
	}
	return out
}

// pairLines notes, for each line in which a value of is begins, where the same
// value of was does. The trees are alike.
func pairLines(is, was *yaml.Node, lines map[int]int) {
	if _, known := lines[is.Line]; !known {
		lines[is.Line] = was.Line
	}
	for i := range is.Content {
		pairLines(is.Content[i], was.Content[i], lines)
	}
}

// encode writes a part of a file. What was quoted is quoted, so that texts and
// numbers stay what they are; comments go.
func encode(node *yaml.Node) []byte {
	data, err := yaml.Marshal(bare(node))
	if err != nil {
		// A tree that was parsed, without aliases and comments, can be written.
		panic(fmt.Sprintf("write a plugin's document: %v", err)) //nolint:forbidigo // cannot happen
	}
	return data
}

// bare is a copy without comments, anchors and the ways of writing a text.
func bare(node *yaml.Node) *yaml.Node {
	if isNull(node) { // which may be written as nothing, and nothing is then a text
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	is := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style & (yaml.TaggedStyle | yaml.FlowStyle)}
	if node.Kind == yaml.ScalarNode && node.Style&^yaml.TaggedStyle != 0 {
		is.Style |= yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		is.Content = append(is.Content, bare(child))
	}
	return is
}

// child is what stands behind a key of a mapping; nil for nothing.
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

// withOutput is a document with exporter.output set to folder, unless it has
// that. What is no mapping is the plugin's to refuse.
func withOutput(config *yaml.Node, folder string) *yaml.Node {
	output := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: folder, Style: yaml.DoubleQuotedStyle}
	exporter := child(config, "exporter")
	if child(exporter, "output") != nil {
		return config
	}
	return with(config, "exporter", with(exporter, "output", output))
}

// with is a copy of a mapping, or of nothing, with value behind key.
func with(node *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	is := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if node != nil {
		if node.Kind != yaml.MappingNode {
			return node
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value != key {
				is.Content = append(is.Content, node.Content[i], node.Content[i+1])
			}
		}
	}
	is.Content = append(is.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
	return is
}
