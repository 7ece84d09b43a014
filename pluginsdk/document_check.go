package pluginsdk

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// documentCheck compares a document with the type that it is to be decoded
// into, and collects what does not fit.
type documentCheck struct{ faults []error }

func (c *documentCheck) add(fault error) {
	switch {
	case len(c.faults) < maxDocumentFaults:
		c.faults = append(c.faults, fault)
	case len(c.faults) == maxDocumentFaults:
		c.faults = append(c.faults, &ConfigError{Err: errors.New("more faults follow")})
	}
}

func (c *documentCheck) fault(n *yaml.Node, path, format string, args ...any) {
	c.add(configFault(path, n.Line, format, args...))
}

var (
	nodeType     = reflect.TypeFor[yaml.Node]()
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
)

func (c *documentCheck) value(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if isNull(n) && !decodesItself(t) {
		return // leaves the field as it is
	}
	switch {
	case t == nodeType || t.Kind() == reflect.Interface:
		c.keys(n, path)
	case decodesItself(t) || t == timeType || n.Tag == "!!binary":
		c.leaf(n, t, path)
	case t.Kind() == reflect.Struct:
		c.mapping(n, path, fieldsOf(t))
	case t.Kind() == reflect.Map:
		c.mapping(n, path, documentFields{rest: t.Elem()})
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		if n.Kind != yaml.SequenceNode {
			c.fault(n, path, "%s, want a list", shown(n, path))
			return
		}
		for i, member := range n.Content {
			c.value(member, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		c.leaf(n, t, path)
	}
}

// keys looks for keys that stand twice where any value is allowed.
func (c *documentCheck) keys(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		c.mapping(n, path, documentFields{rest: reflect.TypeFor[any]()})
	case yaml.SequenceNode:
		for i, member := range n.Content {
			c.value(member, reflect.TypeFor[any](), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

func (c *documentCheck) mapping(n *yaml.Node, path string, fields documentFields) {
	if n.Kind != yaml.MappingNode {
		c.fault(n, path, "%s, want a mapping%s", shown(n, path), fields.known(" of ", " without keys"))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			c.fault(key, path, "%s as a key, want text", shown(key, path))
			continue
		}
		if key.ShortTag() == "!!merge" {
			c.merged(value, path, fields)
			continue
		}
		at := pathOf(key.Value)
		if path != "" {
			at = path + "." + at
		}
		if line, twice := seen[key.Value]; twice {
			c.fault(key, at, "key %s stands in line %d already", quoted(key.Value), line)
			continue
		}
		seen[key.Value] = key.Line
		t := fields.byName[key.Value]
		if t == nil {
			t = fields.rest
		}
		if t == nil {
			c.fault(key, at, "unknown key %s, want%s", quoted(key.Value), fields.known(" one of ", " none"))
			continue
		}
		c.value(value, t, at)
	}
}

// pathOf is a key as a part of a path: quoted where it could do something to a
// terminal, or be taken for several.
func pathOf(key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' }) {
		return quoted(key)
	}
	return key
}

// merged looks at what "<<" puts into a mapping: another one, or several.
func (c *documentCheck) merged(n *yaml.Node, path string, fields documentFields) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.SequenceNode {
		c.mapping(n, path, fields)
		return
	}
	for _, member := range n.Content {
		if member.Kind == yaml.AliasNode {
			member = member.Alias
		}
		c.mapping(member, path, fields)
	}
}

// leaf decodes one value to see whether it fits.
func (c *documentCheck) leaf(n *yaml.Node, t reflect.Type, path string) {
	err := n.Decode(reflect.New(t).Interface())
	if err == nil {
		return
	}
	if decodesItself(t) {
		c.own(n, path, err)
		return
	}
	c.fault(n, path, "%s, want %s", shown(n, path), wanted(t))
}

// own is the error of a type that decodes itself.
func (c *documentCheck) own(n *yaml.Node, path string, err error) {
	if list := members(err); list != nil {
		for _, one := range list {
			c.own(n, path, one)
		}
		return
	}
	var named *ConfigError
	if !errors.As(err, &named) {
		c.fault(n, path, "%s", plainYAML(err))
		return
	}
	at := path
	if path != "" && named.Path != "" && !strings.HasPrefix(named.Path, "[") {
		at += "."
	}
	c.add(&ConfigError{Path: at + named.Path, Err: named.Err})
}

// documentFields are the keys that a mapping may have.
type documentFields struct {
	names  []string // in the order of the struct
	byName map[string]reflect.Type
	rest   reflect.Type // of every other key; nil: none is allowed
}

// fieldsOf reads a struct as yaml does.
func fieldsOf(t reflect.Type) documentFields {
	f := documentFields{byName: map[string]reflect.Type{}}
	f.add(t)
	return f
}

func (f *documentFields) add(t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		if field.PkgPath != "" && !field.Anonymous {
			continue
		}
		tag, tagged := field.Tag.Lookup("yaml")
		if !tagged && !strings.Contains(string(field.Tag), ":") {
			tag = string(field.Tag) // yaml takes a bare tag too
		}
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if strings.Contains(","+options+",", ",inline,") {
			f.inline(field.Type)
			continue
		}
		if name == "" {
			name = strings.ToLower(field.Name)
		}
		f.names = append(f.names, name)
		f.byName[name] = field.Type
	}
}

func (f *documentFields) inline(t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Map {
		f.rest = t.Elem()
	} else if t.Kind() == reflect.Struct {
		f.add(t)
	}
}

// known lists the keys, for an error, as "of" them or "none"; it is empty where
// all are allowed.
func (f documentFields) known(of, none string) string {
	switch {
	case f.rest != nil:
		return ""
	case len(f.names) == 0:
		return none
	}
	return of + strings.Join(f.names, ", ")
}

var (
	yamlUnmarshaler = reflect.TypeFor[yaml.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself tells whether yaml calls a method of t. time.Time has one and
// is decoded by yaml all the same.
func decodesItself(t reflect.Type) bool {
	if t == timeType {
		return false
	}
	p := reflect.PointerTo(t)
	return p.Implements(yamlUnmarshaler) || p.Implements(textUnmarshaler)
}

// wanted says what a value of type t looks like.
func wanted(t reflect.Type) string {
	switch t {
	case durationType:
		return `a duration such as "1m30s"`
	case timeType:
		return `a time such as "2006-01-02T15:04:05Z"`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number" + rangeOf(t)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of 0 or more" + rangeOf(t)
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "text"
	default:
		return "a value for a Go " + t.String()
	}
}

func rangeOf(t reflect.Type) string {
	if t.Bits() == strconv.IntSize || t.Bits() == 64 {
		return ""
	}
	return fmt.Sprintf(" that fits into %d bits", t.Bits())
}

// telling finds words of a path below which a secret may stand.
var telling = regexp.MustCompile(`(?i)header|auth|token|secret|passw|credential|cookie|api.?key|access.?key|private.?key|salt`)

// shown is the value seen, for an error, which goes to the log: not what may be
// a secret.
func shown(n *yaml.Node, path string) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case telling.MatchString(path):
		return fmt.Sprintf("a text of %d bytes", len(n.Value))
	default:
		return quoted(n.Value)
	}
}
