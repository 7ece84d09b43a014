package pluginsdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of an operator's document. A host sends at most as many bytes; the
// others keep a small one from becoming a large one, by aliases.
const (
	maxDocument       = 1 << 20 // bytes
	maxDocumentValues = 100_000 // with those that aliases repeat
	maxDocumentDepth  = 100
	maxDocumentFaults = 20 // that are told
)

// DecodeConfig decodes [Setup.Config], a YAML or JSON document, into v, a
// pointer to a struct or a map with the tags of go.yaml.in/yaml/v3. What the
// document does not name stays as it is, so defaults are set before; with a nil
// or empty document that is all of v.
//
// The constructors of a plugin share the document: a key at its top that v has
// no field for is left to the others. One that nobody has a field for is an
// error, which the SDK finds when all have run, unless it is "processors" or
// "exporter" with nothing in it. So a document for a plugin whose constructors
// decode none is refused, and a processor does not go unheard. A map takes all
// keys. In a Setup that a test has made there are no others, and such a key is
// an error at once.
//
// It is strict: a key that is not known, a key that stands twice and a
// value of another type are errors. All are found at once; the error is a
// [*ConfigError], or several joined, each with its path ("headers.x-api-key",
// "rules[2].name"), the line, the value seen and what is allowed. Return it as
// it is, and do not use v.
//
// A document of more than 1 MiB, of more than 100,000 values, counting what
// aliases repeat, or nested deeper than 100 levels is an error. Types with a
// method UnmarshalYAML or UnmarshalText decode themselves, perhaps twice; an
// error of theirs gets the path put in front.
func (s Setup) DecodeConfig(v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("decode configuration into a %T: want a pointer that is not nil", v) // the author's mistake
	}
	root, err := parseDocument(s.Config)
	if err != nil || root == nil {
		return err
	}
	root = s.readers.share(root, target.Type().Elem())
	var c documentCheck
	c.value(root, target.Type().Elem(), "")
	if len(c.faults) > 0 {
		return errors.Join(c.faults...)
	}
	if err := root.Decode(v); err != nil {
		return &ConfigError{Err: errors.New(plainYAML(err))}
	}
	return nil
}

// parseDocument gives the root of the document, nil where there is nothing in
// it. The root is safe to walk: its size and depth are bounded, aliases and all.
func parseDocument(document []byte) (*yaml.Node, error) {
	if len(document) > maxDocument {
		return nil, configFault("", 0, "document has %d bytes, want %d at most", len(document), maxDocument)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(yamlOfJSON(document)))
	var file, more yaml.Node
	if err := decoder.Decode(&file); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, noYAML(err)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, configFault("", more.Line, "a second document begins, want one")
	} else if !errors.Is(err, io.EOF) {
		return nil, noYAML(err)
	}
	if len(file.Content) == 0 || isNull(file.Content[0]) {
		return nil, nil
	}
	root := file.Content[0]
	size := documentSize{known: map[*yaml.Node]measure{}}
	if _, err := size.of(root, 0); err != nil {
		return nil, err
	}
	return root, nil
}

// documentSize measures values, each alias as much as what it stands for.
type documentSize struct{ known map[*yaml.Node]measure } // of anchored nodes

// A measure is how many values there are, and levels of them; the zero one is
// that of a node that is not measured yet.
type measure struct{ values, levels int }

// of measures n, which stands depth levels deep.
func (s documentSize) of(n *yaml.Node, depth int) (measure, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	m, known := s.known[n]
	if !known {
		var err error
		if m, err = s.measure(n, depth); err != nil {
			return m, err
		}
	} else if m.values == 0 {
		return m, configFault("", n.Line, "anchor %q contains itself", n.Anchor)
	}
	if depth+m.levels > maxDocumentDepth {
		return m, configFault("", n.Line, "nested deeper than %d levels", maxDocumentDepth)
	}
	return m, nil
}

func (s documentSize) measure(n *yaml.Node, depth int) (measure, error) {
	if depth > maxDocumentDepth { // before the levels below are known
		return measure{}, configFault("", n.Line, "nested deeper than %d levels", maxDocumentDepth)
	}
	if n.Anchor != "" {
		s.known[n] = measure{}
	}
	m := measure{values: 1}
	for _, child := range n.Content {
		inner, err := s.of(child, depth+1)
		if err != nil {
			return m, err
		}
		m.levels = max(m.levels, 1+inner.levels)
		if m.values += inner.values; m.values > maxDocumentValues {
			return m, configFault("", n.Line, "more than %d values, counting what aliases repeat", maxDocumentValues)
		}
	}
	if n.Anchor != "" {
		s.known[n] = m
	}
	return m, nil
}

// yamlOfJSON gives a JSON document in a form that is YAML too, which knows
// neither "\/" nor surrogates. It leaves what is no JSON alone.
func yamlOfJSON(document []byte) []byte {
	if !bytes.Contains(document, []byte(`\`)) || !json.Valid(document) {
		return document
	}
	out := make([]byte, 0, len(document))
	for len(document) > 0 {
		n := 1
		switch {
		case document[0] != '\\':
			out = append(out, document[0])
		case document[1] == '/':
			out, n = append(out, '/'), 2
		case document[1] == 'u' && utf16.IsSurrogate(escaped(document)):
			r := utf16.DecodeRune(escaped(document), escaped(document[6:]))
			out, n = utf8.AppendRune(out, r), 6
			if r != utf8.RuneError {
				n = 12
			}
		default:
			out, n = append(out, document[:2]...), 2
		}
		document = document[n:]
	}
	return out
}

// escaped is the character that an escape of JSON, "\u" and four digits, stands
// for; U+FFFD where there is none.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return utf8.RuneError
	}
	r, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(r)
}

// quoted clips long text: a whole file may stand where a number should.
func quoted(s string) string {
	const longest = 64
	if runes := []rune(s); len(runes) > longest {
		return strconv.Quote(string(runes[:longest])) + "..."
	}
	return strconv.Quote(s)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// configFault is a ConfigError that names a line; zero: none.
func configFault(path string, line int, format string, args ...any) *ConfigError {
	text := fmt.Sprintf(format, args...)
	if line > 0 {
		text = fmt.Sprintf("line %d: %s", line, text)
	}
	return &ConfigError{Path: path, Err: errors.New(text)}
}

// plainYAML is an error of the yaml package without its name.
func plainYAML(err error) string {
	var several *yaml.TypeError
	if errors.As(err, &several) {
		return strings.Join(several.Errors, "; ")
	}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "unknown anchor ") { // and the name, perhaps a password that begins with "*"
		return `a value that begins with "*" and is no alias of an anchor: put it in quotes`
	}
	return text
}

// noYAML is a fault of the document's form, with what to do about the commonest.
func noYAML(err error) *ConfigError {
	fault := plainYAML(err)
	text := "no YAML: " + fault
	for sign, advice := range yamlAdvice { // a fault has one sign
		if strings.Contains(fault, sign) {
			text += ": " + advice
		}
	}
	return &ConfigError{Err: errors.New(text)}
}

var yamlAdvice = map[string]string{
	"did not find expected alphabetic":       `a value that begins with "*" or "&", such as a glob, stands in quotes`,
	"cannot start any token":                 `indent with spaces, not tabs, and put a value that begins with "@", "%" or "` + "`" + `" in quotes`,
	"unknown escape character":               `a backslash in double quotes begins an escape; put a regular expression in single quotes`,
	"did not find expected key":              `look at the indentation there and in the lines below`,
	"mapping values are not allowed":         `look at the indentation, and put a value with a colon and a space in quotes`,
	"could not find expected ':'":            `look for a key without a colon there and in the lines above`,
	"did not find expected ',' or":           `look for a bracket or brace that is not closed`,
	"did not find expected '-' indicator":    `look at the indentation of the list`,
	"found unexpected end of stream":         `look for quotes that are not closed`,
	"block sequence entries are not allowed": `a list begins in a line of its own`,
}
