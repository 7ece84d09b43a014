package otlpwire

import "github.com/servetrace/servetrace/internal/otlpwire/field"

import "google.golang.org/protobuf/encoding/protowire"

// Cut gives a request of req's spans from the skip-th on: as many as fit into
// maxSpans spans and maxBytes bytes (zero or less means no limit), at least one
// if there is one, however long. spans is how many they are; calling Cut again
// with skip moved on by that gives the next piece. Each piece repeats the
// resource and scope it needs and owns its memory. The spans keep their order.
// ResourceSpans and ScopeSpans without spans are left out; fields of the request
// that are unknown go with the first piece. Each call walks over req. Malformed
// bytes give an error.
func Cut(req []byte, skip, maxSpans, maxBytes int) (piece []byte, spans int, err error) {
	s := cutter{maxSpans: maxSpans, maxBytes: maxBytes, skip: skip}
	c := part{req, 0}.fields()
	for skip == 0 && c.next() {
		if !c.is(field.RequestResourceSpans) {
			s.other = append(s.other, c.raw[c.start:c.pos]...)
		}
	}
	s.done = len(s.other)
	if err := walk(req, &s); err != nil {
		return nil, 0, err
	}
	s.close()
	return s.write(), s.spans, nil
}

// cutter collects the spans of a piece and knows at each moment how long the
// piece would be. Lengths are of the ScopeSpans and ResourceSpans that are being
// filled; what was filled before them is in done.
type cutter struct {
	maxSpans, maxBytes int
	skip               int // spans to pass over first

	other  []byte // unknown fields of the request
	groups []group
	spans  int  // in groups
	done   int  // bytes of the piece that later spans cannot change
	filled int  // bytes of the ResourceSpans being filled that they cannot
	full   bool // the next span did not fit: nothing is collected any more
}

// A group is one ScopeSpans of a piece, with the head of its ResourceSpans if
// it is the first in it.
type group struct {
	resourceHead []byte
	opens        bool // begins a new ResourceSpans
	head         []byte
	spans        []part
	length       int // of all spans, as fields
}

func (s *cutter) resource(p part) {
	if s.full {
		return
	}
	s.close()
	s.groups = append(s.groups, group{opens: true, resourceHead: head(p, field.ResourceSpansScopeSpans)})
}

func (s *cutter) scope(p part) {
	if s.full {
		return
	}
	g := s.last()
	if len(g.spans) == 0 { // a fresh ResourceSpans, or a ScopeSpans without spans
		g.head = head(p, field.ScopeSpansSpans)
		return
	}
	s.filled += sizeField(len(g.head) + g.length)
	s.groups = append(s.groups, group{resourceHead: g.resourceHead, head: head(p, field.ScopeSpansSpans)})
}

func (s *cutter) span(p part) {
	if s.skip > 0 {
		s.skip--
		return
	}
	s.full = s.full || s.spans > 0 && s.exceeds(p)
	if s.full {
		return
	}
	g := s.last()
	g.spans = append(g.spans, p)
	g.length += sizeField(len(p.raw))
	s.spans++
}

func (s *cutter) last() *group { return &s.groups[len(s.groups)-1] }

// exceeds tells whether the piece would break a limit with one span more.
func (s *cutter) exceeds(p part) bool {
	if s.maxSpans > 0 && s.spans >= s.maxSpans {
		return true
	}
	return s.maxBytes > 0 && s.done+s.open(sizeField(len(p.raw))) > s.maxBytes
}

// open is the length of the ResourceSpans being filled, as a field, with extra
// bytes of spans.
func (s *cutter) open(extra int) int {
	g := s.last()
	return sizeField(len(g.resourceHead) + s.filled + sizeField(len(g.head)+g.length+extra))
}

// close ends the ResourceSpans being filled. What has no spans is forgotten.
func (s *cutter) close() {
	if len(s.groups) == 0 {
		return
	}
	if g := s.last(); len(g.spans) > 0 {
		s.done += s.open(0)
	} else {
		if !g.opens {
			s.done += sizeField(len(g.resourceHead) + s.filled)
		}
		s.groups = s.groups[:len(s.groups)-1]
	}
	s.filled = 0
}

// write gives the piece.
func (s *cutter) write() []byte {
	piece := append(make([]byte, 0, s.done), s.other...)
	for i := 0; i < len(s.groups); {
		end := i + 1
		for end < len(s.groups) && !s.groups[end].opens {
			end++
		}
		piece = appendGroups(piece, s.groups[i:end])
		i = end
	}
	return piece
}

// appendGroups writes one ResourceSpans.
func appendGroups(dst []byte, groups []group) []byte {
	length := len(groups[0].resourceHead)
	for _, g := range groups {
		length += sizeField(len(g.head) + g.length)
	}
	dst = appendHead(dst, field.RequestResourceSpans, length)
	dst = append(dst, groups[0].resourceHead...)
	for _, g := range groups {
		dst = appendHead(dst, field.ResourceSpansScopeSpans, len(g.head)+g.length)
		dst = append(dst, g.head...)
		for _, span := range g.spans {
			dst = appendHead(dst, field.ScopeSpansSpans, len(span.raw))
			dst = append(dst, span.raw...)
		}
	}
	return dst
}

// head is a message without its fields of that number.
func head(p part, without uint32) []byte {
	var kept []byte
	c := p.fields()
	for c.next() {
		if !c.is(without) {
			kept = append(kept, c.raw[c.start:c.pos]...)
		}
	}
	return kept
}

// appendHead appends tag and length of a field of n bytes of content.
func appendHead(dst []byte, num protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.BytesType), uint64(n))
}
