package pluginsdk

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// documentReaders knows which keys at the top of the document the constructors
// of a plugin have decoded. Safe for concurrent use; a nil one knows of nobody.
type documentReaders struct {
	mu    sync.Mutex
	known []string // in the order of the constructors
	all   bool     // somebody takes any key
}

// share gives the part of the document that a value of type t is decoded from:
// the keys that t knows. The others are left for other constructors.
func (r *documentReaders) share(root *yaml.Node, t reflect.Type) *yaml.Node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if r == nil {
		return root
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Kind() != reflect.Struct || t == nodeType || decodesItself(t) || fieldsOf(t).rest != nil {
		r.all = true
		return root
	}
	fields := fieldsOf(t)
	for _, name := range fields.names {
		if !slices.Contains(r.known, name) {
			r.known = append(r.known, name)
		}
	}
	if root.Kind != yaml.MappingNode {
		return root // the check says so
	}
	part := *root
	part.Content = nil
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		if key.Kind == yaml.ScalarNode && key.ShortTag() != "!!merge" && fields.byName[key.Value] == nil {
			continue
		}
		part.Content = append(part.Content, key, root.Content[i+1])
	}
	return &part
}

// reserved are the keys that a document may have for any plugin, as long as
// there is nothing in them. Elsewhere nothing is no excuse: by "redact: {}" at
// the top an operator means a processor with its defaults.
var reserved = []string{"processors", "exporter"}

// unread are the keys that no constructor has decoded, each a ConfigError,
// without those that are reserved and empty.
func (r *documentReaders) unread(document []byte) error {
	root, err := parseDocument(document)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.all || root == nil && err == nil:
		return nil
	case err != nil:
		return err // as the constructors were told, if any has asked
	case root.Kind != yaml.MappingNode && len(r.known) > 0:
		return nil // they have said so
	case len(r.known) == 0:
		return &ConfigError{Err: errors.New("the plugin reads no configuration document, so this one has no effect: remove it")}
	}
	var faults []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" || slices.Contains(r.known, key.Value) ||
			slices.Contains(reserved, key.Value) && isEmpty(value) {
			continue
		}
		faults = append(faults, configFault(pathOf(key.Value), key.Line, "unknown key %s, want one of %s",
			quoted(key.Value), strings.Join(r.known, ", ")))
	}
	return errors.Join(faults...)
}

// isEmpty tells whether a value has nothing in it.
func isEmpty(n *yaml.Node) bool {
	return isNull(n) || (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && len(n.Content) == 0
}
