package processors

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// AttributesConfig configures [Attributes]. Its fields have the same names as in the
// attributes processor of the OpenTelemetry Collector.
type AttributesConfig struct {
	// Name is the processor's name in the delivery accounting, in which the host counts
	// dropped spans. Empty means "attributes".
	Name string `yaml:"name"`
	// Actions are the edits, in the order in which they are applied. At least one is
	// required.
	Actions []AttributeAction `yaml:"actions"`
	// Salt is a secret key for the action "hash", which then computes an HMAC-SHA-256. If it
	// is empty, the hash is a plain SHA-256, as in the Collector. Then anyone can find a
	// value by hashing guesses and comparing the hashes.
	Salt string `yaml:"salt"`
}

// AttributeAction describes one edit of attributes.
type AttributeAction struct {
	// Key is the attribute's key. Required. For update, delete, hash and rename it may be
	// a glob: "*" matches any number of characters, "?" matches one, and a backslash makes
	// the next character literal. Insert and upsert take no wildcards.
	Key string `yaml:"key"`
	// Action is the name of the edit, one of the following. Required.
	//
	//   - "insert": set Key if it is missing
	//   - "update": set Key if it exists
	//   - "upsert": set Key
	//   - "delete": remove Key
	//   - "hash": replace the value of Key by its SHA-256, in 64 hexadecimal digits. As in
	//     the Collector, texts and bytes are hashed unchanged, a bool as one byte, and a
	//     number as 8 bytes, little-endian. Arrays and maps are hashed as JSON.
	//   - "rename": change the key to To; an existing attribute with the key To is replaced
	Action string `yaml:"action"`
	// Value is the new value for insert, update and upsert: a string, bool, int, float64, or
	// a list of values of one of these types. For these actions, set either Value or
	// FromAttribute.
	Value any `yaml:"value"`
	// FromAttribute is the key of an attribute of the same span, resource, event or link.
	// Its value becomes the new value. If there is no such attribute, the action does
	// nothing.
	FromAttribute string `yaml:"from_attribute"`
	// To is the new key for rename. If Key has a wildcard, Key and To must each contain one
	// "*", and no other wildcard. The "*" in To stands for the text that the "*" in Key has
	// matched: "http.*" to "web.*".
	To string `yaml:"to"`
	// On selects the attributes to edit: "span" for attributes of spans, and "resource",
	// "event" or "link" for attributes of resources, events or links. Empty means "span".
	On string `yaml:"on"`
}

// Validate returns all errors in the fields, joined, each a [*pluginsdk.ConfigError].
func (c AttributesConfig) Validate() error {
	_, err := c.compile()
	return err
}

type operation uint8

const (
	opInsert operation = iota
	opUpdate
	opUpsert
	opDelete
	opHash
	opRename
)

var operations = map[string]operation{
	"insert": opInsert, "update": opUpdate, "upsert": opUpsert,
	"delete": opDelete, "hash": opHash, "rename": opRename,
}

// A place is a kind of object with attributes: spans, resources, events or links.
type place uint8

const (
	onSpan place = iota
	onResource
	onEvent
	onLink
	places // the number of places
)

var placeNames = map[string]place{"span": onSpan, "resource": onResource, "event": onEvent, "link": onLink}

type attributeAction struct {
	op    operation
	on    place
	key   *glob
	value attribute.Value
	from  string
	salt  []byte

	// The parts of Key and To for rename. Key is before+"*"+after. To is
	// toBefore+"*"+toAfter, or toBefore if it has no wildcard.
	before, after, toBefore, toAfter string
}

func (c AttributesConfig) compile() ([]attributeAction, error) {
	var f faults
	f.checkName(c.Name)
	if len(c.Actions) == 0 {
		f.add("actions", "is empty: give at least one, such as {key: team, action: upsert, value: search}")
	}
	var compiled []attributeAction
	for i, a := range c.Actions {
		compiled = append(compiled, a.compile(fmt.Sprintf("actions[%d]", i), []byte(c.Salt), &f))
	}
	return compiled, f.err()
}

func (a AttributeAction) compile(path string, salt []byte, f *faults) attributeAction {
	c := attributeAction{key: newGlob(a.Key), from: a.FromAttribute, salt: salt}
	if a.Key == "" {
		f.add(path+".key", "is empty: give the attribute that the action is about")
	}
	if a.Action == "" {
		f.add(path+".action", "is empty: want one of delete, hash, insert, rename, update, upsert")
		return c
	}
	op := oneOf(path+".action", a.Action, operations, f)
	if op == nil {
		return c
	}
	c.op = *op
	if on := oneOf(path+".on", a.On, placeNames, f); on != nil {
		c.on = *on
	}
	switch c.op {
	case opInsert, opUpsert:
		if !c.key.isLiteral {
			f.add(path+".key", "%q has a wildcard: %s sets one key (a backslash before the wildcard takes it as it is)", a.Key, a.Action)
		}
		c.value = a.source(path, f)
	case opUpdate:
		c.value = a.source(path, f)
	case opRename:
		c.target(path, a, f)
	}
	if c.op != opRename && a.To != "" {
		f.add(path+".to", "%q: only rename has a new name", a.To)
	}
	if c.op != opInsert && c.op != opUpdate && c.op != opUpsert && (a.Value != nil || a.FromAttribute != "") {
		f.add(path, "%s sets no value: leave value and from_attribute out", a.Action)
	}
	return c
}

// source adds an error unless exactly one of Value and FromAttribute is set. It returns
// Value as an attribute's value.
func (a AttributeAction) source(path string, f *faults) attribute.Value {
	switch {
	case a.FromAttribute != "" && a.Value != nil:
		f.add(path, "value and from_attribute are both set; action %s takes one of them", a.Action)
	case a.FromAttribute != "":
	case a.Value == nil:
		f.add(path+".value", "is missing: %s needs value or from_attribute", a.Action)
	default:
		value, ok := valueOf(a.Value)
		if !ok {
			f.add(path+".value", "%v: want a text, a number, true or false, or a list of one of these", a.Value)
		}
		return value
	}
	return attribute.Value{}
}

// target checks the new key of the action rename, and splits Key and To at their
// wildcards.
func (c *attributeAction) target(path string, a AttributeAction, f *faults) {
	if a.To == "" {
		f.add(path+".to", "is empty: rename needs the new key")
		return
	}
	stars := strings.Count(a.To, "*")
	if c.key.isLiteral {
		c.toBefore = a.To
		if stars > 0 {
			f.add(path+".to", "%q has a wildcard and key %q has none for it to stand for", a.To, a.Key)
		}
		return
	}
	if stars != 1 || strings.Count(a.Key, "*") != 1 || strings.ContainsAny(a.Key, `?\`) {
		f.add(path+".to", "%q: to rename by a glob, give one \"*\" in key (here %q) and one in to", a.To, a.Key)
		return
	}
	c.before, c.after, _ = strings.Cut(a.Key, "*")
	c.toBefore, c.toAfter, _ = strings.Cut(a.To, "*")
}

func (c *attributeAction) newName(key string) string {
	if c.key.isLiteral {
		return c.toBefore
	}
	return c.toBefore + key[len(c.before):len(key)-len(c.after)] + c.toAfter
}

// hash returns the SHA-256 of a value, or its HMAC-SHA-256 if salt is not empty, in
// hexadecimal digits. It returns an empty value unchanged.
func hash(v attribute.Value, salt []byte) attribute.Value {
	var data []byte
	switch v.Type() {
	case attribute.EMPTY:
		return v
	case attribute.BYTESLICE:
		data = v.AsByteSlice()
	case attribute.BOOL:
		data = []byte{0}
		if v.AsBool() {
			data[0] = 1
		}
	case attribute.INT64:
		data = binary.LittleEndian.AppendUint64(nil, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		data = binary.LittleEndian.AppendUint64(nil, math.Float64bits(v.AsFloat64()))
	default:
		data = []byte(v.String())
	}
	sum := sha256.Sum256(data)
	if len(salt) == 0 {
		return attribute.StringValue(hex.EncodeToString(sum[:]))
	}
	mac := hmac.New(sha256.New, salt)
	mac.Write(data)
	return attribute.StringValue(hex.EncodeToString(mac.Sum(nil)))
}
