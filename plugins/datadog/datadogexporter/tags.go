package datadogexporter

import "strconv"

// tags are what Datadog keeps of a span beside its fields. A name is in one of
// the two, once: what is set first stays. So whoever fills them begins with what
// counts most, and no tag has to be looked for and taken away again.
type tags struct {
	texts   []textTag
	numbers []numberTag

	// marks say of each name, by its id, whether and where it is set.
	marks  []mark
	serial uint32
}

type textTag struct {
	name  *tagName
	value string
}

type numberTag struct {
	name  *tagName
	value float64
}

type mark struct {
	serial uint32
	// at is the index in texts; in numbers it is -2 less the index; and -1 is a
	// name that is kept free.
	at int32
}

const keptFree = -1

// reset begins with a span that has none.
func (t *tags) reset() {
	t.texts, t.numbers = t.texts[:0], t.numbers[:0]
	if t.serial++; t.serial == 0 { // once in 2³² spans
		clear(t.marks)
		t.serial = 1
	}
}

// take tells whether a name is free, and takes it.
func (t *tags) take(n *tagName, at int) bool {
	for n.id >= len(t.marks) {
		t.marks = append(t.marks, make([]mark, max(128, n.id))...)
	}
	m := &t.marks[n.id]
	if m.serial == t.serial {
		return false
	}
	*m = mark{t.serial, int32(at)}
	return true
}

func (t *tags) has(n *tagName) bool { return n.id < len(t.marks) && t.marks[n.id].serial == t.serial }

// keepFree leaves a name without a value.
func (t *tags) keepFree(n *tagName) { t.take(n, keptFree) }

func (t *tags) text(n *tagName, value string) {
	if t.take(n, len(t.texts)) {
		t.texts = append(t.texts, textTag{n, value})
	}
}

func (t *tags) number(n *tagName, value float64) {
	if t.take(n, -2-len(t.numbers)) {
		t.numbers = append(t.numbers, numberTag{n, value})
	}
}

// optional is text, but for one that is empty.
func (t *tags) optional(n *tagName, value string) {
	if value != "" {
		t.text(n, value)
	}
}

// maxExact is the first integer whose successor a float64 can not hold.
const maxExact = 1 << 53

// integer keeps an integer exact: as a number where Datadog's can hold it, else
// as text.
func (t *tags) integer(n *tagName, value int64) {
	if value >= maxExact || value <= -maxExact {
		t.text(n, strconv.FormatInt(value, 10))
		return
	}
	t.number(n, float64(value))
}

// textAt is the place of a text, for who changes it; nil if there is none.
func (t *tags) textAt(n *tagName) *string {
	if !t.has(n) || t.marks[n.id].at < 0 {
		return nil
	}
	return &t.texts[t.marks[n.id].at].value
}

// numberOf is the value of a number.
func (t *tags) numberOf(n *tagName) (float64, bool) {
	if !t.has(n) || t.marks[n.id].at > -2 {
		return 0, false
	}
	return t.numbers[-2-t.marks[n.id].at].value, true
}
