package processors

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Attributes sets, renames, deletes and hashes attributes of spans, resources,
// events and links, in the order of its actions: each sees what those before it
// did. In the books it is "attributes", though it drops nothing.
//
// An attribute that is set in place of another keeps its place, a new one comes
// last. Where a key stands several times its last value counts, and one is left
// after an edit. A resource without spans is left as it is.
//
// It allocates only for what it edits: nothing for a value of the config, some
// 100 bytes for a hash, a copy for what is renamed.
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
	actions [places][]attributeAction // by what they are on, each in the order of the config
	spare   sync.Pool                 // of *attributeWalk
}

var (
	_ pluginsdk.Processor = (*attributesProcessor)(nil)
	_ pluginsdk.Named     = (*attributesProcessor)(nil)
)

func (p *attributesProcessor) Process(_ context.Context, b *pluginsdk.Batch) error {
	w, ok := p.spare.Get().(*attributeWalk)
	if !ok {
		w = &attributeWalk{p: p}
	}
	defer p.spare.Put(w)
	w.reset(b)
	defer w.reset(nil)
	raw := b.Bytes()
	if err := outerLevels(b, raw); err != nil {
		return err
	}
	return w.request(raw)
}

// attributeWalk is one walk over the bytes of a batch, which finds the keys; the
// edits are made on the batch's views. It is kept for the memory it has.
type attributeWalk struct {
	p     *attributesProcessor
	views views
	spans int // met so far

	resource, other editor
}

// reset readies w for another batch, or lets go of the last one.
func (w *attributeWalk) reset(b *pluginsdk.Batch) {
	w.views.reset(b)
	w.resource.reset()
	w.other.reset()
	w.spans = 0
}

func (w *attributeWalk) request(raw []byte) error {
	f := fieldsOf(raw)
	for f.next() {
		if f.is(fieldResourceSpans) {
			if err := w.resourceSpans(f.content); err != nil {
				return err
			}
		}
	}
	return malformed("batch", f.err)
}

func (w *attributeWalk) resourceSpans(raw []byte) error {
	first := w.spans
	w.resource.reset()
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldResource) && w.has(onResource): // in several pieces it is one
			err = w.resource.collect(f.content, fieldResourceAttributes)
		case f.is(fieldScopeSpans):
			err = w.scopeSpans(f.content)
		}
		if err != nil {
			return err
		}
	}
	if f.err == nil && w.has(onResource) && w.spans > first {
		apply(&w.resource, w.views.span(first).Resource(), w.p.actions[onResource])
	}
	return malformed("resource", f.err)
}

func (w *attributeWalk) scopeSpans(raw []byte) error {
	f := fieldsOf(raw)
	for f.next() {
		if !f.is(fieldSpan) {
			continue
		}
		if err := w.span(f.content); err != nil {
			return err
		}
		w.spans++
	}
	return malformed("scope", f.err)
}

func (w *attributeWalk) span(raw []byte) error {
	if !w.has(onSpan) && !w.has(onEvent) && !w.has(onLink) {
		return nil
	}
	if w.has(onSpan) {
		w.other.reset()
		if err := w.other.collect(raw, fieldSpanAttributes); err != nil {
			return err
		}
		if w.other.concerns(w.p.actions[onSpan]) {
			apply(&w.other, w.views.span(w.spans), w.p.actions[onSpan])
		}
	}
	if !w.has(onEvent) && !w.has(onLink) {
		return nil
	}
	events, links := 0, 0
	f := fieldsOf(raw)
	for f.next() {
		w.other.reset()
		switch {
		case f.is(fieldSpanEvents):
			events++
			if !w.has(onEvent) {
				continue
			}
			if err := w.other.collect(f.content, fieldEventAttributes); err != nil {
				return err
			}
			if w.other.concerns(w.p.actions[onEvent]) {
				apply(&w.other, w.views.event(w.spans, events-1), w.p.actions[onEvent])
			}
		case f.is(fieldSpanLinks):
			links++
			if !w.has(onLink) {
				continue
			}
			if err := w.other.collect(f.content, fieldLinkAttributes); err != nil {
				return err
			}
			if w.other.concerns(w.p.actions[onLink]) {
				apply(&w.other, w.views.link(w.spans, links-1), w.p.actions[onLink])
			}
		}
	}
	return malformed("span", f.err)
}

func (w *attributeWalk) has(p place) bool { return len(w.p.actions[p]) > 0 }

// target is what has attributes: a span, a resource, an event or a link.
type target interface {
	Attribute(key attribute.Key) (attribute.Value, bool)
	SetAttributes(kvs ...attribute.KeyValue)
	DeleteAttributes(keys ...attribute.Key)
}

// editor applies actions to one target, whose keys it knows at any moment: so a
// glob is held against them without a look at any value.
type editor struct {
	keys  []liveKey      // of those that are not gone no two are the same
	index map[string]int // of the last of each in keys; empty while keys are few
	added []byte         // texts of keys that actions have added, one after another
	spare []byte         // what is hashed
	sum   [sha256.Size]byte

	// For calls that take several: a slice made for each would be allocated.
	set  [1]attribute.KeyValue
	name [1]attribute.Key
}

// liveKey is an attribute's key, and whether an action has taken it away.
type liveKey struct {
	text []byte // of the batch, or of editor.added as it was then
	gone bool
}

func (e *editor) reset() {
	clear(e.keys) // of what refers to the batch
	e.keys, e.added = e.keys[:0], e.added[:0]
	if len(e.index) > 0 {
		e.index = nil // clearing one that was large once would cost every span
	}
}

// collect adds the keys that stand in a message in its field num.
func (e *editor) collect(message []byte, num protowire.Number) error {
	f := fieldsOf(message)
	for f.next() {
		if !f.is(num) {
			continue
		}
		var key []byte
		kv := fieldsOf(f.content)
		for kv.next() {
			if kv.is(fieldKey) {
				key = kv.content
			}
		}
		if kv.err != nil {
			return malformed("attribute", kv.err)
		}
		if lookup(e, key) < 0 {
			e.add(key)
		}
	}
	return malformed("attributes", f.err)
}

// maxListed is how many keys are looked through one by one. More get an index,
// so that a span with an unusual number does not cost their square.
const maxListed = 32

func (e *editor) add(key []byte) {
	e.keys = append(e.keys, liveKey{text: key})
	switch n := len(e.keys); {
	case len(e.index) > 0:
		e.index[string(key)] = n - 1
	case n > maxListed:
		e.index = make(map[string]int, 2*n)
		for i := range e.keys {
			e.index[string(e.keys[i].text)] = i
		}
	}
}

// lookup is the index of a key that the target has, -1 if it has none.
func lookup[T string | []byte](e *editor, key T) int {
	if len(e.index) > 0 {
		if i, ok := e.index[string(key)]; ok && !e.keys[i].gone {
			return i
		}
		return -1
	}
	for i := range e.keys {
		if !e.keys[i].gone && string(e.keys[i].text) == string(key) {
			return i
		}
	}
	return -1
}

// concerns tells whether one of the actions may have something to do, so that
// most targets need no view.
func (e *editor) concerns(actions []attributeAction) bool {
	for i := range actions {
		if op := actions[i].op; op == opInsert || op == opUpsert || e.find(&actions[i].key) >= 0 {
			return true
		}
	}
	return false
}

// find is the index of the first key that a pattern stands for, -1 if none.
func (e *editor) find(pattern *glob) int {
	if pattern.isLiteral && !pattern.fold {
		return lookup(e, pattern.literal)
	}
	for i := range e.keys {
		if !e.keys[i].gone && matches(pattern, e.keys[i].text) {
			return i
		}
	}
	return -1
}

func apply[T target](e *editor, t T, actions []attributeAction) {
	for i := range actions {
		switch a := &actions[i]; a.op {
		case opInsert, opUpsert:
			if there := e.find(&a.key) >= 0; there && a.op == opInsert {
				continue
			}
			if value, ok := source(e, t, a); ok {
				put(e, t, a.name, value)
			}
		default:
			each(e, t, a)
		}
	}
}

// each does an action to every attribute that it stands for. Those that it adds
// itself are not among them.
func each[T target](e *editor, t T, a *attributeAction) {
	for i, n := 0, len(e.keys); i < n; i++ {
		if e.keys[i].gone || !matches(&a.key, e.keys[i].text) {
			continue
		}
		key := a.name
		if !a.key.isLiteral {
			key = string(e.keys[i].text)
		}
		switch a.op {
		case opDelete:
			remove(e, t, key)
		case opUpdate:
			if value, ok := source(e, t, a); ok {
				put(e, t, key, value)
			}
		case opHash:
			if value, ok := t.Attribute(attribute.Key(key)); ok {
				put(e, t, key, e.hash(value, a.salt))
			}
		case opRename:
			to := a.newName(key)
			if value, ok := t.Attribute(attribute.Key(key)); ok && to != key {
				remove(e, t, key)
				put(e, t, to, value)
			}
		}
	}
}

// source is the value that an action sets, and whether there is one.
func source[T target](e *editor, t T, a *attributeAction) (attribute.Value, bool) {
	if a.from == "" {
		return a.value, true
	}
	if !e.has(a.from) {
		return attribute.Value{}, false
	}
	return t.Attribute(attribute.Key(a.from))
}

// put sets an attribute and notes its key. A key that is no UTF-8 would be
// mended where it is set, and the attribute stay beside its mended copy.
func put[T target](e *editor, t T, key string, value attribute.Value) {
	if !utf8.ValidString(key) {
		remove(e, t, key)
		key = strings.ToValidUTF8(key, "\uFFFD")
	}
	e.set[0] = attribute.KeyValue{Key: attribute.Key(key), Value: value}
	t.SetAttributes(e.set[:]...)
	e.set[0] = attribute.KeyValue{}
	if !e.has(key) {
		from := len(e.added)
		e.added = append(e.added, key...)
		e.add(e.added[from:])
	}
}

func remove[T target](e *editor, t T, key string) {
	e.name[0] = attribute.Key(key)
	t.DeleteAttributes(e.name[:]...)
	if i := lookup(e, key); i >= 0 {
		e.keys[i].gone = true
	}
}

// has tells whether the target has that key.
func (e *editor) has(key string) bool { return lookup(e, key) >= 0 }
