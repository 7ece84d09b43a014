package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Bounds of one document.
const (
	maxDepth  = 100 // levels of nesting
	maxErrors = 20  // errors that are reported for one document
)

// Error is one error in a document.
type Error struct {
	// Path leads to the value through keys and indices: "rules[2].name". Empty if
	// the error concerns the whole document.
	Path string
	// Line and Column count from 1. Both are 0 if the place is unknown.
	Line, Column int
	// Text is the error without its place.
	Text string
	// Err is the error of a Go type's own decoding method. It is nil for all other errors.
	Err error
}

// Error returns the line, the path and the text: "line 3: rules[2].name: a list, want text".
func (e *Error) Error() string {
	text := e.Text
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return text
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Parse returns the root node of the only document in data, or nil if the document is empty or
// null. It returns an error for a second document, for bytes that are not valid UTF-8 text, for
// more than [MaxBytes], and for more than 100 levels of nesting. The tree of nodes contains
// aliases as they are. Errors are of type *Error.
func Parse(data []byte) (*yaml.Node, error) {
	if len(data) > MaxBytes {
		return nil, &Error{Text: fmt.Sprintf("document has %d bytes, want %d at most", len(data), MaxBytes)}
	}
	if e := byteError(data); e != nil {
		return nil, e
	}
	loader, err := yaml.NewLoader(bytes.NewReader(adaptJSON(data)),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, err
	}
	var document, second yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, syntaxError(err)
	}
	switch err := loader.Load(&second); {
	case err == nil:
		return nil, &Error{Line: second.Line, Column: second.Column, Text: "a second document begins, want one"}
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(err)
	}
	if len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	return document.Content[0], nil
}

// Decode fills the value to which v points from node. It uses the field tags of
// go.yaml.in/yaml/v4. A field for which the node has no key stays unchanged. If node is nil, the
// whole value stays unchanged. An unknown key, a repeated key, a value with a wrong type and
// excessive aliasing are errors. Decode joins all errors, each of type *Error. After an error
// the content of the value is undefined.
//
// An error shows the wrong value, except below a key whose name suggests a secret. If an alias
// leads to the wrong value, the line of the error is the line of the anchor.
func Decode(node *yaml.Node, v any) error {
	if node == nil {
		return nil
	}
	err := node.Load(v, yaml.WithKnownFields())
	if err == nil {
		return nil
	}
	var list []*yaml.LoadError
	var several *yaml.LoadErrors
	var single *yaml.LoadError
	switch {
	case errors.As(err, &several):
		list = several.Errors
	case errors.As(err, &single):
		list = []*yaml.LoadError{single}
	default:
		return &Error{Text: plain(err.Error())}
	}
	return joined(list, node, reflect.TypeOf(v))
}

// joined returns the errors of the library in words for operators, each error once. The library
// reports an error below an anchor again for each alias of the anchor.
func joined(list []*yaml.LoadError, root *yaml.Node, t reflect.Type) error {
	var all []error
	seen := map[string]bool{}
	for _, e := range list {
		explained := explain(e, root, t)
		if seen[explained.Error()] {
			continue
		}
		seen[explained.Error()] = true
		if len(all) == maxErrors {
			all = append(all, &Error{Text: "more errors follow"})
			break
		}
		all = append(all, explained)
	}
	return errors.Join(all...)
}

// escapes matches the escape sequences of JSON. A pair of UTF-16 surrogates is one match.
var escapes = regexp.MustCompile(`\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)`)

// adaptJSON makes a JSON document valid as YAML. It replaces tabs, and replaces escaped pairs of
// UTF-16 surrogates by their character. It returns a document that is not JSON unchanged.
func adaptJSON(data []byte) []byte {
	if !json.Valid(data) {
		return data
	}
	data = bytes.ReplaceAll(data, []byte("\t"), []byte(" ")) // texts in JSON have no tabs
	return escapes.ReplaceAllFunc(data, func(escape []byte) []byte {
		var text string
		if len(escape) == 2 || json.Unmarshal([]byte(`"`+string(escape)+`"`), &text) != nil {
			return escape
		}
		return []byte(text)
	})
}

// syntaxError returns the *Error for a syntax error that the library has found. It adds advice for
// frequent causes.
func syntaxError(err error) error {
	e := &Error{Text: plain(err.Error())}
	var load *yaml.LoadError
	if errors.As(err, &load) {
		e = &Error{Line: load.Mark.Line, Column: load.Mark.Column, Text: load.Message}
	}
	for sign, advice := range syntaxAdvice { // at most one sign matches
		if strings.Contains(e.Text, sign) {
			e.Text += ": " + advice
		}
	}
	if strings.Contains(e.Text, "unknown anchor") { // the name may be a password that begins with "*"
		e.Text = `a value that begins with "*" and is no alias of an anchor: put it in quotes`
	}
	e.Text = "not YAML: " + e.Text
	return e
}

// byteError returns an error for the first byte that is not valid UTF-8 text, or nil if there is
// none. The library would not report the place of such a byte, and would accept UTF-16.
func byteError(data []byte) *Error {
	line, column := 1, 1
	for at := 0; at < len(data); column++ {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 || r < ' ' && !strings.ContainsRune("\t\n\r", r) {
			return &Error{Line: line, Column: column, Text: fmt.Sprintf("the byte 0x%02x is no text; write the file in UTF-8", data[at])}
		}
		if at += size; r == '\n' {
			line, column = line+1, 0
		}
	}
	return nil
}

// plain returns an error text without the name of the library.
func plain(text string) string {
	return strings.TrimPrefix(strings.TrimPrefix(text, "go-yaml: "), "yaml: ")
}

var syntaxAdvice = map[string]string{
	"did not find expected alphabetic":       `a value that begins with "*" or "&", such as a glob, stands in quotes`,
	"cannot start any token":                 `indent with spaces, not tabs, and put a value that begins with "@", "%" or "` + "`" + `" in quotes`,
	"tab character that violates":            `indent with spaces, not tabs`,
	"unknown escape character":               `a backslash in double quotes begins an escape; put a regular expression in single quotes`,
	"did not find expected key":              `look at the indentation there and in the lines below`,
	"mapping values are not allowed":         `look at the indentation, and put a value with a colon and a space in quotes`,
	"could not find expected ':'":            `look for a key without a colon there and in the lines above`,
	"did not find expected ',' or":           `look for a bracket or brace that is not closed`,
	"did not find expected '-' indicator":    `look at the indentation of the list`,
	"found unexpected end of stream":         `look for quotes that are not closed`,
	"block sequence entries are not allowed": `a list begins in a line of its own`,
}
