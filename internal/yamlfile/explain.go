package yamlfile

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// place is a key or a value in a document, with its path. typ is the Go type into which the value
// is decoded, or for a key, the Go type of the mapping with the key. It is nil if it is unknown.
type place struct {
	path string
	node *yaml.Node
	typ  reflect.Type
}

// explain returns an error of the library in words for operators. It replaces the names of Go types
// by the path of the value, the value and the allowed values. t is the Go type into which the
// document root is decoded.
func explain(e *yaml.LoadError, root *yaml.Node, t reflect.Type) *Error {
	found := &Error{Line: e.Mark.Line, Column: e.Mark.Column, Text: e.Message}
	top := place{node: root, typ: t}
	if strings.Contains(e.Message, "not found in type") || strings.Contains(e.Message, "already defined") {
		return explainKey(found, top)
	}
	at, ok := find(top, found, false)
	if !ok {
		if at, ok = find(top, found, true); ok { // the error is about a key that is not a text
			found.Text = shown(at.node, at.path) + " as a key, want text"
			if at.typ != nil && at.typ.Kind() == reflect.Map {
				found.Text = shown(at.node, at.path) + " as a key, want " + wanted(at.typ.Key())
			}
		}
		return found
	}
	found.Path = at.path
	switch {
	case at.typ == nil:
	case decodesItself(at.typ):
		found.Err = e.Unwrap()
	case strings.HasPrefix(e.Message, "cannot construct") || strings.HasPrefix(e.Message, "parsing time"):
		found.Text = fmt.Sprintf("%s, want %s", shown(at.node, at.path), wanted(at.typ))
	}
	return found
}

// explainKey adds the path and the allowed keys to the error about an unknown or repeated key.
func explainKey(e *Error, top place) *Error {
	at, ok := find(top, e, true)
	if !ok {
		return e
	}
	e.Path = at.path
	if strings.Contains(e.Text, "already defined") {
		return e
	}
	var keys []string
	if at.typ != nil {
		keys, _ = Keys(at.typ)
	}
	return UnknownKey(at.path, at.node, keys)
}

// find returns the place with the line and column of e, in p or below p. If key is true, it looks
// for a key, otherwise for a value. It does not follow aliases.
func find(p place, e *Error, key bool) (place, bool) {
	here := func(n *yaml.Node) bool { return n.Line == e.Line && n.Column == e.Column }
	for p.typ != nil && p.typ.Kind() == reflect.Pointer && !decodesItself(p.typ) {
		p.typ = p.typ.Elem()
	}
	if !key && here(p.node) {
		return p, true
	}
	for i, child := range p.node.Content {
		below := place{path: fmt.Sprintf("%s[%d]", p.path, i), node: child, typ: element(p.typ)}
		if p.node.Kind == yaml.MappingNode {
			if i%2 == 0 {
				if key && here(child) {
					return place{JoinPath(p.path, child.Value), child, p.typ}, true
				}
				continue
			}
			name := p.node.Content[i-1]
			below = place{JoinPath(p.path, name.Value), child, member(p.typ, name.Value)}
			if name.ShortTag() == "!!merge" {
				below.path, below.typ = p.path, p.typ
			}
		}
		if found, ok := find(below, e, key); ok {
			return found, true
		}
	}
	return place{}, false
}

// JoinPath returns the path of a key below the key at path. It puts the key in quotes if the key is
// empty, or has a space or a character that cannot be printed.
func JoinPath(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' }) {
		key = quoted(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// element returns the type of the members of a list type. It returns nil if t is no list or nil.
func element(t reflect.Type) reflect.Type {
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		return t.Elem()
	}
	return nil
}

// member returns the type of the value that a key has in a map or a struct of type t. It returns
// nil if that is unknown.
func member(t reflect.Type, key string) reflect.Type {
	switch {
	case t == nil:
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() == reflect.Struct:
		for _, f := range fields(t) {
			if f.name == key || f.name == "" {
				return f.typ
			}
		}
	}
	return nil
}

// field is a key that a struct decodes, with the type of its value. An empty name stands for an
// inline map, which accepts any key.
type field struct {
	name string
	typ  reflect.Type
}

// Keys returns the keys that a struct of type t decodes, in the order of its fields. other reports
// that t may accept further keys, because t has an inline map, is not a struct, or has a
// decoding method of its own.
func Keys(t reflect.Type) (keys []string, other bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[yaml.Node]() || decodesItself(t) {
		return nil, true
	}
	for _, f := range fields(t) {
		if f.name == "" {
			other = true
		} else {
			keys = append(keys, f.name)
		}
	}
	return keys, other
}

// fields returns the keys that a struct decodes, with the names that the library uses. The entry
// for an inline map comes last.
func fields(t reflect.Type) []field {
	var list, rest []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case !f.IsExported() && !f.Anonymous || name == "-":
		case slices.Contains(strings.Split(options, ","), "inline"):
			inner := f.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Map {
				rest = append(rest, field{typ: inner.Elem()})
			} else {
				list = append(list, fields(inner)...)
			}
		case name == "":
			list = append(list, field{strings.ToLower(f.Name), f.Type})
		default:
			list = append(list, field{name, f.Type})
		}
	}
	return append(list, rest...)
}

// UnknownKey returns the error about a key that is not one of the known keys. path is the path of
// the key.
func UnknownKey(path string, key *yaml.Node, known []string) *Error {
	want := "none"
	if len(known) > 0 {
		want = "one of " + strings.Join(known, ", ")
	}
	return &Error{Path: path, Line: key.Line, Column: key.Column, Text: fmt.Sprintf("unknown key %s, want %s", quoted(key.Value), want)}
}

// decodesItself reports whether the library decodes values of type t by a method of t. It returns
// false for time.Time, which has such a method, but the library does not use it.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t != reflect.TypeFor[time.Time]() &&
		(p.Implements(reflect.TypeFor[yaml.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()))
}

// wanted describes the allowed values for the type t, for an error.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return `a duration such as "1m30s"`
	case reflect.TypeFor[time.Time]():
		return `a time such as "2006-01-02T15:04:05Z"`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number" + bits(t)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of 0 or more" + bits(t)
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map:
		return "a mapping"
	case reflect.Struct:
		if keys, other := Keys(t); len(keys) > 0 && !other {
			return "a mapping of " + strings.Join(keys, ", ")
		}
		return "a mapping"
	default:
		return "a value for a Go " + t.String()
	}
}

// bits describes the size of an integer type, for an error.
func bits(t reflect.Type) string {
	if t.Bits() == 64 {
		return ""
	}
	return fmt.Sprintf(" that fits into %d bits", t.Bits())
}

// secretPath matches the path of a value that may be a secret.
var secretPath = regexp.MustCompile(`(?i)header|auth|token|secret|passw|credential|cookie|api.?key|access.?key|private.?key|salt`)

// shown describes a value for an error. Errors are logged, so it does not show a value that may be a
// secret because of its path.
func shown(n *yaml.Node, path string) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case secretPath.MatchString(path):
		return fmt.Sprintf("a text of %d bytes", len(n.Value))
	default:
		return quoted(n.Value)
	}
}

// quoted returns a text in quotes. It cuts a text of more than 64 characters.
func quoted(s string) string {
	const longest = 64
	if runes := []rune(s); len(runes) > longest {
		return strconv.Quote(string(runes[:longest])) + "..."
	}
	return strconv.Quote(s)
}
