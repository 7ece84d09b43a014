package otlpwire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// CheckPatched checks the result of ApplyPatch for a batch and a patch, and returns the
// number of spans in the result. Check must have accepted the batch. Then CheckPatched returns
// an error if and only if Check returns one for the result. It is faster than Check, because it
// skips the fields that the patch has not changed. Its cost is linear in the bytes of patch and
// result.
func CheckPatched(batch, patch, result []byte) (spans int, err error) {
	c := patchChecker{checker: checker{req: result, maxSpan: math.MaxInt}, batch: batch, splices: part{patch, 0}.fields()}
	err = c.message(0, len(result), requestForm(), 0, &original{cursor: part{batch, 0}.fields()})
	return c.spans, err
}

// patchChecker walks through the patched batch, and at the same time through the batch before
// the patch and through the splices of the patch. All three walks only move forward.
type patchChecker struct {
	checker // checks the patched batch
	batch   []byte
	splices cursor
	// The bytes of the patched batch from offset from to offset to are copied from the batch
	// before the patch, in which they begin at offset at. The splice after follows these bytes,
	// unless last is set: then no splice follows.
	from, to, at int
	after        splice
	last         bool
}

// seek moves from, to and at to the first copied range of the patched batch that ends after
// pos. It reports whether this range begins before end.
func (c *patchChecker) seek(pos, end int) bool {
	for c.to <= pos {
		if c.last {
			return false
		}
		c.at += c.to - c.from + int(c.after.remove)
		c.from = c.to + len(c.after.insert)
		c.to = c.from + c.nextKept()
	}
	return c.from < end
}

// nextKept reads the next splice. It returns the number of bytes that are copied from the batch
// before this splice, or after the last splice if there is no further splice.
func (c *patchChecker) nextKept() int {
	for c.splices.next() {
		if c.splices.is(patchSplices) {
			c.after, _ = readSplice(c.splices.here()) // cannot fail, because ApplyPatch has read the splice
			return int(c.after.keep)
		}
	}
	c.last = true
	return len(c.batch) - c.at
}

// original walks through the fields of a message in the batch before the patch. Its offsets are
// offsets in that batch.
type original struct {
	cursor
	more bool // the last call of next has found a field
}

// find moves to the first field that ends after an offset. It reports whether there is such a
// field.
func (o *original) find(offset int) bool {
	for o.more && o.pos <= offset {
		o.more = o.next()
	}
	return o.more
}

// message checks the message from pos to end in the patched batch. of and depth are as in the
// method check. was is the message of the same type and depth in the batch before the patch,
// from which the first copied bytes come.
func (c *patchChecker) message(pos, end int, of *form, depth int, was *original) error {
	was.more = was.next()
	for pos < end {
		if n := c.kept(pos, end, of, was); n > 0 {
			pos += n
			continue
		}
		f := cursor{part: part{c.req[:end], 0}, pos: pos}
		if !f.next() {
			return f.err()
		}
		if err := c.field(&f, of, depth, was); err != nil {
			return err
		}
		pos = f.pos
	}
	return nil
}

// kept returns the length of whole fields, from pos on, that were copied unchanged from the
// message was and need no check. It returns 0 if the field at pos must be checked.
func (c *patchChecker) kept(pos, end int, of *form, was *original) int {
	if !c.seek(pos, pos+1) {
		return 0
	}
	at := c.at + pos - c.from
	if !was.find(at) || was.start != at {
		return 0
	}
	most := min(c.to, end) - pos
	if rest := len(was.raw) - at; !of.holdsSpans && rest <= most { // a message without spans, of which the whole rest was copied
		was.more = false
		return rest
	}
	n := was.pos - at
	inner := of.rule(uint64(was.num)).of
	if n > most || inner != nil && inner.holdsSpans {
		return 0
	}
	if inner != nil && inner.isSpan {
		c.spans++
	}
	return n
}

// field checks the field f of a message. A part of f may be copied from the message was.
func (c *patchChecker) field(f *cursor, of *form, depth int, was *original) error {
	r := of.rule(uint64(f.num))
	if r.of != nil && f.typ == protowire.BytesType && depth < maxLevels && c.seek(f.body, f.pos) {
		at := c.at + max(0, f.body-c.from)
		if was.find(at) && was.is(f.num) && was.body <= at {
			if r.of.isSpan {
				c.spans++
			}
			inner := original{cursor: cursor{part: part{was.raw[:was.pos], 0}, pos: was.body}}
			was.more = was.next() // later fields of the patched message are compared with the next field of was
			return c.message(f.body, f.pos, r.of, depth+1, &inner)
		}
	}
	return c.check(f.start, f.pos, of, depth)
}
