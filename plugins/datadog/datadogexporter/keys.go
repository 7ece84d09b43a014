package datadogexporter

import (
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// question is the keys under which one thing is said, as slots; of those that
// are set the first counts.
type question struct {
	slots []slot
	// mask has a bit for each slot, which it may share with others: where a list
	// has none of them, it has no answer.
	mask uint64
}

// slot is the place of a key that a rule asks for; 0: none does.
type slot int

// slots are the keys that any rule asks for.
var slots = map[string]slot{}

// ask makes a question, for the rules' variables.
func ask(keys ...string) question {
	var q question
	for _, key := range keys {
		if slots[key] == 0 {
			slots[key] = slot(len(slots) + 1)
		}
		q.slots = append(q.slots, slots[key])
		q.mask |= slots[key].bit()
	}
	return q
}

func (s slot) bit() uint64 { return 1 << (s % 64) }

// tagName is the name of a tag, with its msgpack. It never changes.
type tagName struct {
	text    string
	encoded []byte
	// id is its place in a coder's marks.
	id int
}

// names are those of the tags that the rules set themselves.
var names []*tagName

// name makes a tagName, for the variables.
func name(text string) *tagName {
	n := newName(text, len(names))
	names = append(names, n)
	return n
}

func newName(text string, id int) *tagName {
	return &tagName{text: text, encoded: msgp.AppendString(nil, text), id: id}
}

// key is what is known of an attribute's key.
type key struct {
	text string
	slot slot
	// tag is what the attribute becomes; nil for one that has a field of its own
	// in Datadog, or no text.
	tag *tagName
	// newer is the new name of what this old one says: where a span has both, the
	// new one counts.
	newer slot
	// seen and at are where the list that is being read has it.
	seen uint64
	at   int
}

// dictionary has all keys and tag names that a coder has met.
type dictionary struct {
	// recent are keys by their place, which is cheaper to find than that in a map.
	recent [256]*key
	keys   map[string]*key
	tags   map[string]*tagName
	count  int // of tags
	bytes  int // of text, beyond the rules' own
}

// maxKeys and maxKeyBytes are beyond how many a dictionary starts anew, so that a
// program with ever new keys, or long ones, costs no memory.
const (
	maxKeys     = 8192
	maxKeyBytes = 1 << 20
)

// full tells whether to start anew.
func (d *dictionary) full() bool {
	return d.count > maxKeys || len(d.keys) > maxKeys || d.bytes > maxKeyBytes
}

func newDictionary() dictionary {
	d := dictionary{keys: map[string]*key{}, tags: make(map[string]*tagName, len(names)), count: len(names)}
	for _, n := range names {
		d.tags[n.text] = n
	}
	return d
}

func (d *dictionary) key(text []byte) *key {
	recent := &d.recent[place(text)]
	if *recent == nil || (*recent).text != string(text) {
		*recent = d.find(text)
	}
	return *recent
}

// place is where a key is among the recent ones: by its length and what stands
// in its middle and at its end, in which keys differ.
func place(text []byte) byte {
	n := len(text)
	if n == 0 {
		return 0
	}
	return byte(n)<<5 ^ byte(n)>>3 ^ text[n-1] ^ text[n/2]<<3
}

func (d *dictionary) find(text []byte) *key {
	if known, ok := d.keys[string(text)]; ok {
		return known
	}
	k := &key{text: string(text)}
	k.slot = slots[k.text]
	if to := tagKey(k.text); to != "" {
		k.tag = d.tag(to)
	}
	if from, old := renamedFrom[k.text]; old {
		k.newer = slots[from]
	}
	d.keys[k.text] = k
	d.bytes += len(k.text)
	return k
}

func (d *dictionary) tag(text string) *tagName {
	if known, ok := d.tags[text]; ok {
		return known
	}
	n := newName(strings.Clone(text), d.count)
	d.count++
	d.tags[n.text] = n
	d.bytes += len(n.text) + len(n.encoded)
	return n
}

// list is an attribute list as it was read: of a key that stands several times,
// the last value.
type list struct {
	entries []entry
	// at is where the keys of the slots are in entries, from 1; mask is as in
	// question.
	at   []int32
	mask uint64
}

type entry struct {
	key *key
	value
}

func newList() list { return list{at: make([]int32, len(slots)+1)} }

func (l *list) reset() {
	for i := range l.entries {
		l.at[l.entries[i].key.slot] = 0
	}
	l.entries, l.mask = l.entries[:0], 0
}

// add puts an attribute into the list that serial stands for.
func (l *list) add(k *key, v value, serial uint64) {
	if k.seen == serial {
		l.entries[k.at].value = v
		return
	}
	k.seen, k.at = serial, len(l.entries)
	l.entries = append(l.entries, entry{k, v})
	if k.slot != 0 {
		l.at[k.slot] = int32(len(l.entries))
		l.mask |= k.slot.bit()
	}
}

// get is the value of a slot; of no kind where there is none.
func (l *list) get(s slot) value {
	if i := l.at[s]; i != 0 {
		return l.entries[i-1].value
	}
	return value{}
}

func (l *list) has(s slot) bool { return l.at[s] != 0 }
