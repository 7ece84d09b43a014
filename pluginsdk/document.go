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

// DecodeConfig decodes [Setup.Config], a YAML or JSON document, into v. v is a pointer to
// a map, or to a struct with the tags of go.yaml.in/yaml/v4. A field whose key is not in
// the document keeps its value, so set defaults before the call. An empty document
// changes nothing.
//
// The constructors of a plugin share the document. So DecodeConfig ignores top-level keys
// without a field in v, because another constructor may decode them. After all
// constructors have run, the SDK returns an error for each top-level key that no
// constructor has decoded. The keys "processors" and "exporter" without a value are no
// error. If no constructor calls DecodeConfig, any document that is not empty is an
// error. If v is a map, it takes all keys. In a Setup that a test has made, DecodeConfig
// itself returns an error for a top-level key without a field.
//
// Decoding is strict: unknown keys, repeated keys and values of a wrong type are errors.
// DecodeConfig returns all errors joined. Each is a [*ConfigError] with the path
// ("headers.x-api-key", "rules[2].name"), the line, the value found and the values
// allowed. After an error, do not use v, and return the error unchanged from the
// constructor.
//
// A document of more than 1 MiB, with more than 100 levels of nesting or with excessive
// aliasing is an error. If a type has the method UnmarshalYAML or UnmarshalText,
// DecodeConfig calls it, and adds the path to its errors.
func (s Setup) DecodeConfig(v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("decode configuration into a %T: want a pointer that is not nil", v) // a mistake of the plugin's author, not of the operator
	}
	root, err := yamlfile.Parse(s.Config)
	if err != nil || root == nil {
		return configErrors(err)
	}
	return configErrors(yamlfile.Decode(s.readers.share(root, target.Type()), v))
}

// configErrors converts the errors of package yamlfile in err to ConfigErrors, joined. It
// returns other errors unchanged.
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
	if own, ok := errors.AsType[*ConfigError](e.Err); ok { // the error comes from a method UnmarshalYAML or UnmarshalText
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

// documentReaders records the top-level keys of the configuration that the constructors
// of a plugin have decoded. It is safe for concurrent use. If it is nil, each constructor
// gets the whole document.
type documentReaders struct {
	mu    sync.Mutex
	known []string // keys decoded so far, in the order of the constructors
	all   bool     // a constructor has decoded the document into a map, which accepts every key
}

// share returns the part of the document that a value of type t decodes: the top-level
// keys for which t has a field. It records these keys as decoded.
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
		return root // yamlfile.Decode reports the error
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

// isPlainKey reports whether a key of a mapping is a plain value such as a text. YAML
// also allows merge keys, lists and mappings as keys.
func isPlainKey(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.ShortTag() != "!!merge"
}

// unread returns a ConfigError for each top-level key of the document that no constructor
// has decoded. It ignores the keys "processors" and "exporter" if they have no value.
func (r *documentReaders) unread(document []byte) error {
	root, err := yamlfile.Parse(document)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.all || root == nil && err == nil:
		return nil
	case err != nil:
		return configErrors(err) // the constructors return the same error, and remarks drops the repetition
	case len(r.known) == 0:
		return &ConfigError{Err: errors.New("the plugin reads no configuration, so the configuration has no effect: remove it")}
	case root.Kind != yaml.MappingNode:
		return nil // a constructor has already returned an error about this
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

// isEmpty reports whether a YAML value is null, an empty list or an empty mapping.
func isEmpty(n *yaml.Node) bool {
	return n.ShortTag() == "!!null" || n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode && len(n.Content) == 0
}
