package processors

import (
	"context"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Attributes sets, renames, deletes and hashes attributes of spans, resources,
// events and links, in the order of its actions: each action sees the edits of
// the actions before it. It drops no span.
//
// An attribute that replaces another keeps its place; a new attribute comes
// last. If a key is repeated, its last value counts, and one attribute is left
// after an edit.
func Attributes(c AttributesConfig) pluginsdk.NewProcessor {
	return func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) {
		actions, err := c.compile()
		if err != nil {
			return nil, within(kindAttributes, err)
		}
		p := &attributesProcessor{named: nameOr(c.Name, kindAttributes)}
		for _, a := range actions {
			p.actions[a.on] = append(p.actions[a.on], a)
		}
		return p, nil
	}
}

type attributesProcessor struct {
	named
	actions [places][]attributeAction // by their place, each in the order of the config
}

var (
	_ pluginsdk.Processor = (*attributesProcessor)(nil)
	_ pluginsdk.Named     = (*attributesProcessor)(nil)
)

func (p *attributesProcessor) Process(_ context.Context, b *pluginsdk.Batch) error {
	if actions := p.actions[onResource]; len(actions) > 0 {
		for resource := range b.Resources() {
			apply(resource, actions)
		}
	}
	if len(p.actions[onSpan])+len(p.actions[onEvent])+len(p.actions[onLink]) == 0 {
		return nil
	}
	for span := range b.Spans() {
		apply(span, p.actions[onSpan])
		if actions := p.actions[onEvent]; len(actions) > 0 {
			for event := range span.Events() {
				apply(event, actions)
			}
		}
		if actions := p.actions[onLink]; len(actions) > 0 {
			for link := range span.Links() {
				apply(link, actions)
			}
		}
	}
	return nil
}

// apply does the actions to the attributes of one owner, in order.
func apply[T attributed](owner T, actions []attributeAction) {
	for i := range actions {
		a := &actions[i]
		if a.key.isLiteral {
			a.do(owner, a.name)
			continue
		}
		for _, key := range matching(owner, a.key) {
			a.do(owner, key)
		}
	}
}

// matching returns the keys of an owner that match a glob, each once.
func matching[T attributed](owner T, g *glob) []string {
	var keys []string
	seen := map[string]bool{}
	for kv := range owner.Attributes() {
		if key := string(kv.Key); g.matches(key) && !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// do does the action to the attribute of one key.
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

// put sets an attribute. Setting a key replaces bytes in it that are no UTF-8, so
// put deletes the attribute of the original key.
func put(owner attributed, key string, value attribute.Value) {
	if !utf8.ValidString(key) {
		owner.DeleteAttributes(attribute.Key(key))
		key = strings.ToValidUTF8(key, "\uFFFD")
	}
	owner.SetAttributes(attribute.KeyValue{Key: attribute.Key(key), Value: value})
}
