package processors

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Attributes returns the constructor of a processor that sets, renames, deletes and
// hashes attributes of spans, resources, events and links. It applies the actions in
// order, so each action sees the edits of the earlier actions. It drops no span.
//
// A replaced attribute keeps its position, and a new attribute comes last. If a span has
// a key several times, the last value counts, and an edit of the key leaves one
// attribute.
func Attributes(c AttributesConfig) pluginsdk.NewProcessor {
	return constructor(kindAttributes, c.Name, func(pluginsdk.Setup) (func(*pluginsdk.Batch), error) {
		actions, err := c.compile()
		var by actionsByPlace
		for _, a := range actions {
			by[a.on] = append(by[a.on], a)
		}
		return by.process, err
	})
}

// actionsByPlace holds the actions for spans, resources, events and links, each list in
// the order of the config.
type actionsByPlace [places][]attributeAction

func (actions *actionsByPlace) process(b *pluginsdk.Batch) {
	if len(actions[onResource]) > 0 {
		for resource := range b.Resources() {
			apply(resource, actions[onResource])
		}
	}
	if len(actions[onSpan])+len(actions[onEvent])+len(actions[onLink]) == 0 {
		return
	}
	for span := range b.Spans() {
		apply(span, actions[onSpan])
		if len(actions[onEvent]) > 0 {
			for event := range span.Events() {
				apply(event, actions[onEvent])
			}
		}
		if len(actions[onLink]) > 0 {
			for link := range span.Links() {
				apply(link, actions[onLink])
			}
		}
	}
}

func apply[T attributed](owner T, actions []attributeAction) {
	for i := range actions {
		a := &actions[i]
		if a.key.isLiteral {
			a.do(owner, a.key.literal)
			continue
		}
		for _, key := range matching(owner, a.key) {
			a.do(owner, key)
		}
	}
}

// matching returns the keys of the owner's attributes that match a glob, each once.
func matching[T attributed](owner T, g *glob) []string {
	var keys []string
	seen := map[string]bool{}
	for kv := range owner.Attributes() {
		if key := string(kv.Key); !seen[key] && g.matches(key) {
			keys, seen[key] = append(keys, key), true
		}
	}
	return keys
}

func (c *attributeAction) do(owner attributed, key string) {
	old, there := owner.Attribute(attribute.Key(key))
	switch {
	case c.op == opInsert && there, c.op != opInsert && c.op != opUpsert && !there:
		return
	case c.op == opDelete:
		owner.DeleteAttributes(attribute.Key(key))
	case c.op == opHash:
		put(owner, key, hash(old, c.salt))
	case c.op == opRename:
		if to := c.newName(key); to != key {
			owner.DeleteAttributes(attribute.Key(key))
			put(owner, to, old)
		}
	case c.from == "":
		put(owner, key, c.value)
	default:
		if value, ok := owner.Attribute(attribute.Key(c.from)); ok {
			put(owner, key, value)
		}
	}
}

// put sets an attribute. A key that is not valid UTF-8 cannot be set, so put deletes the
// attribute and sets it under a repaired key.
func put(owner attributed, key string, value attribute.Value) {
	if !utf8.ValidString(key) {
		owner.DeleteAttributes(attribute.Key(key))
		key = strings.ToValidUTF8(key, "\uFFFD")
	}
	owner.SetAttributes(attribute.KeyValue{Key: attribute.Key(key), Value: value})
}
