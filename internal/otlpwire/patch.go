package otlpwire

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of Patch and Splice, see proto/servetrace/plugin/v1.
const (
	patchSplices = 1

	spliceKeep   = 1
	spliceRemove = 2
	spliceInsert = 3

	spliceHead = 12 // usual size of the tags, lengths and numbers of a Splice, in bytes
)

// MaxPatched bounds the size of the result of ApplyPatch, in bytes.
const MaxPatched = 64 << 20

// A keptRange is a range of bytes of the request that the edited request has, too.
type keptRange struct {
	start, end int // offsets in the request
	before     int // number of bytes that the patch inserts before the range, all splices together
}

// keptRanges lists the ranges of the request that a patch keeps, in the order of the request.
type keptRanges struct {
	list  []keptRange
	bytes int // sum of the lengths in list
}

// add records that the patch keeps b, which begins at index at of the request raw. inserted is
// the number of bytes that the patch inserts before b, all splices together. add returns false
// if b is not a part of raw, or begins before the end of the last kept range.
func (k *keptRanges) add(raw, b []byte, at, inserted int) bool {
	if len(b) == 0 {
		return true
	}
	if at+len(b) > len(raw) || &raw[at] != &b[0] {
		return false
	}
	if n := len(k.list); n > 0 {
		last := &k.list[n-1]
		if at < last.end {
			return false
		}
		if at == last.end && inserted == last.before {
			last.end += len(b)
			k.bytes += len(b)
			return true
		}
	}
	k.list = append(k.list, keptRange{at, at + len(b), inserted})
	k.bytes += len(b)
	return true
}

// move adds n to the field before of each range from index first on.
func (k *keptRanges) move(first, n int) {
	for i := first; i < len(k.list); i++ {
		k.list[i].before += n
	}
}

// AppendPatch appends the edits to dst, encoded as a Patch of the plugin contract, and returns
// the longer slice. If ApplyPatch applies this patch to the bytes that Parse got, its result is
// the result of AppendTo. The patch of a request without edits is empty.
func (r *Request) AppendPatch(dst []byte) []byte {
	if !r.Edited() {
		return dst
	}
	w := rewriter{r: r, dst: slices.Grow(r.inserts[:0], r.editedBytes()), patch: true, kept: keptRanges{list: r.kept[:0]}}
	w.container(part{r.raw, 0}, ofResource, 0, 0)
	dst = slices.Grow(dst, len(w.dst)+spliceHead*(len(w.kept.list)+1))
	pos, inserted, keep := 0, 0, 0
	for _, k := range w.kept.list {
		if k.start > pos || k.before > inserted {
			dst = appendSplice(dst, keep, k.start-pos, w.dst[inserted:k.before])
			keep = 0
		}
		keep += k.end - k.start
		pos, inserted = k.end, k.before
	}
	if pos < len(r.raw) || inserted < len(w.dst) {
		dst = appendSplice(dst, keep, len(r.raw)-pos, w.dst[inserted:])
	}
	r.inserts, r.kept = w.dst, w.kept.list
	return dst
}

// appendSplice appends an encoded Splice to a Patch.
func appendSplice(dst []byte, keep, remove int, insert []byte) []byte {
	size := sizeNumber(spliceKeep, keep) + sizeNumber(spliceRemove, remove)
	if len(insert) > 0 {
		size += SizeField(len(insert))
	}
	dst = protowire.AppendVarint(appendTag(dst, patchSplices), uint64(size))
	dst = appendNumber(dst, spliceKeep, keep)
	dst = appendNumber(dst, spliceRemove, remove)
	if len(insert) > 0 {
		dst = appendField(dst, spliceInsert, insert)
	}
	return dst
}

func sizeNumber(num protowire.Number, n int) int {
	if n == 0 {
		return 0
	}
	return protowire.SizeTag(num) + protowire.SizeVarint(uint64(n))
}

func appendNumber(dst []byte, num protowire.Number, n int) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), uint64(n))
}

// ApplyPatch applies an encoded Patch of the plugin contract to a batch, appends the
// result to dst and returns the longer slice. It allocates only to grow dst, once. It
// returns dst unchanged and an error if the patch is malformed, reaches past the end of
// the batch, or makes a batch of more than MaxPatched bytes. CheckPatched checks the
// result, which may be any bytes. dst must not overlap batch or patch.
func ApplyPatch(dst, batch, patch []byte) ([]byte, error) {
	// This capacity is enough, because a patch is longer than the bytes that it inserts.
	result := slices.Grow(dst, min(len(batch)+len(patch), MaxPatched))
	size := 0
	c := part{patch, 0}.fields()
	for c.next() {
		if !c.is(patchSplices) {
			continue
		}
		s, err := readSplice(c.here())
		switch {
		case err != nil:
			return dst, err
		case s.keep+s.remove > uint64(len(batch)):
			return dst, fmt.Errorf("splice at byte %d of the patch keeps %d and removes %d bytes of the batch, which has only %d more", c.start, s.keep, s.remove, len(batch))
		}
		if size += int(s.keep) + len(s.insert); size <= MaxPatched {
			result = append(append(result, batch[:s.keep]...), s.insert...)
		}
		batch = batch[s.keep+s.remove:]
	}
	if c.fault != faultNone {
		return dst, patchError(&c)
	}
	if size += len(batch); size > MaxPatched {
		return dst, fmt.Errorf("patched batch has %d bytes: at most %d are allowed", size, MaxPatched)
	}
	return append(result, batch...), nil
}

// splice is a decoded Splice.
type splice struct {
	keep, remove uint64 // numbers of bytes; they fit into 32 bits
	insert       []byte
}

func readSplice(p part) (splice, error) {
	var s splice
	c := p.fields()
	for c.next() {
		switch {
		case c.isVarint(spliceKeep):
			s.keep = uint64(uint32(c.bits)) // protobuf, too, uses only the low 32 bits for a uint32
		case c.isVarint(spliceRemove):
			s.remove = uint64(uint32(c.bits))
		case c.is(spliceInsert):
			s.insert = c.content()
		}
	}
	if c.fault != faultNone {
		return splice{}, patchError(&c)
	}
	return s, nil
}

func patchError(c *cursor) error {
	return fmt.Errorf("malformed patch at byte %d: %s", c.at(), faultTexts[c.fault])
}
