package otlpwire

import "github.com/servetrace/servetrace/internal/otlpwire/field"

// walk calls visit for each ResourceSpans, ScopeSpans and Span inside the message p, in the order
// of the bytes. It visits a message before the messages inside it. The messages directly in p
// are of kind k.
func walk(p part, k kind, visit func(kind, part)) error {
	c := p.fields()
	for c.next() {
		if !c.is(forms[k].field) {
			continue
		}
		visit(k, c.here())
		if k < ofSpan {
			if err := walk(c.here(), k+1, visit); err != nil {
				return err
			}
		}
	}
	return c.err()
}

// CountSpans returns the number of spans of an encoded ExportTraceServiceRequest. It does not
// read inside the spans. For malformed bytes it returns an error with the offset, and the number
// of spans before this offset.
func CountSpans(req []byte) (int, error) {
	n := 0
	err := walk(part{req, 0}, ofResource, func(k kind, _ part) {
		if k == ofSpan {
			n++
		}
	})
	return n, err
}

// ResourceSpans returns the content of each ResourceSpans of an encoded
// ExportTraceServiceRequest, in order. It does not read inside a ResourceSpans. The result
// refers to req. For malformed bytes it returns an error with the offset.
func ResourceSpans(req []byte) ([][]byte, error) {
	var list [][]byte
	c := part{req, 0}.fields()
	for c.next() {
		if c.is(field.RequestResourceSpans) {
			list = append(list, c.content())
		}
	}
	return list, c.err()
}
