package pluginsdk

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// DecodeConfig decodes [Setup.Config], a YAML or JSON document, into v, a pointer to a
// struct or a map with the tags of go.yaml.in/yaml/v4. A field whose key is not in the
// document keeps its value, so set defaults before the call. An empty document changes
// nothing.
//
// The constructors of a plugin share the document. DecodeConfig ignores keys at the top
// of the document that v has no field for. After all constructors have run, the SDK
// reports each key that no constructor decodes, except "processors" and "exporter"
// without a value. If no constructor calls DecodeConfig, the SDK refuses a document that
// is not empty. If v is a map, it takes all keys. In a Setup that a test has made, an
// unknown key at the top is an error at once.
//
// Decoding is strict: unknown keys, repeated keys and values of another type are
// errors. DecodeConfig returns all of them joined, each a [*ConfigError] with the
// path ("headers.x-api-key", "rules[2].name"), the line, the value seen and the
// values allowed. Return the error unchanged, and do not use v.
//
// A document of more than 1 MiB, with more than 100 levels of nesting or with
// excessive aliasing is an error. Types with a method UnmarshalYAML or
// UnmarshalText decode themselves; DecodeConfig adds the path to their errors.
func (s Setup) DecodeConfig(v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("decode configuration into a %T: want a pointer that is not nil", v) // a mistake of the plugin's author
	}
	root, err := yamlfile.Parse(s.Config)
	if err != nil || root == nil {
		return configErrors(err)
	}
	return configErrors(yamlfile.Decode(s.readers.share(root, target.Type()), v))
}

// configErrors returns the errors of yamlfile as ConfigErrors, joined.
func configErrors(err error) error {
	if list := members(err); list != nil {
		return joinEach(list, configErrors)
	}
	e, ok := errors.AsType[*yamlfile.Error](err)
	if !ok {
		return err
	}
	if list := members(e.Err); list != nil {
		return joinEach(list, func(one error) error {
			return configErrors(&yamlfile.Error{Path: e.Path, Line: e.Line, Text: one.Error(), Err: one})
		})
	}
	if own, ok := errors.AsType[*ConfigError](e.Err); ok { // the error of a type that decodes itself
		path := e.Path
		if path != "" && own.Path != "" && !strings.HasPrefix(own.Path, "[") {
			path += "."
		}
		return &ConfigError{Path: path + own.Path, Err: own.Err}
	}
	text := e.Text
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return &ConfigError{Path: e.Path, Err: errors.New(text)}
}

// joinEach converts each error of a list, and joins the results.
func joinEach(list []error, convert func(error) error) error {
	var all []error
	for _, one := range list {
		all = append(all, convert(one))
	}
	return errors.Join(all...)
}

// documentReaders has the top-level keys of the document that the constructors of a plugin
// decode. Safe for concurrent use. With a nil documentReaders, each constructor gets the
// whole document.
type documentReaders struct {
	mu    sync.Mutex
	known []string // in the order of the constructors
	all   bool     // one of the constructors accepts every key
}

// share returns the part of the document that a value of type t decodes: the keys that t
// has. Other constructors may decode the other keys.
func (r *documentReaders) share(root *yaml.Node, t reflect.Type) *yaml.Node {
	if r == nil {
		return root
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, other := yamlfile.Keys(t)
	if other {
		r.all = true
		return root
	}
	for _, key := range keys {
		if !slices.Contains(r.known, key) {
			r.known = append(r.known, key)
		}
	}
	if root.Kind != yaml.MappingNode {
		return root // Decode reports the error
	}
	part := *root
	part.Content = nil
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		if !isPlainKey(key) || slices.Contains(keys, key.Value) {
			part.Content = append(part.Content, key, root.Content[i+1])
		}
	}
	return &part
}

// isPlainKey reports whether a key names a field. A merge key, a list and a mapping do not.
func isPlainKey(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.ShortTag() != "!!merge"
}

// unread returns a ConfigError for each key that no constructor decodes. It ignores the
// keys "processors" and "exporter" if they have no value.
func (r *documentReaders) unread(document []byte) error {
	root, err := yamlfile.Parse(document)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.all || root == nil && err == nil:
		return nil
	case err != nil:
		return configErrors(err) // the constructors return the same error, which is reported once
	case len(r.known) == 0:
		return &ConfigError{Err: errors.New("the plugin reads no configuration, so the configuration has no effect: remove it")}
	case root.Kind != yaml.MappingNode:
		return nil // a constructor has reported the error
	}
	var faults []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		reserved := key.Value == "processors" || key.Value == "exporter"
		if isPlainKey(key) && !slices.Contains(r.known, key.Value) && (!reserved || !isEmpty(value)) {
			faults = append(faults, configErrors(yamlfile.UnknownKey(yamlfile.JoinPath("", key.Value), key, r.known)))
		}
	}
	return errors.Join(faults...)
}

// isEmpty reports whether a value is null, an empty list or an empty mapping.
func isEmpty(n *yaml.Node) bool {
	return n.ShortTag() == "!!null" || n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode && len(n.Content) == 0
}
