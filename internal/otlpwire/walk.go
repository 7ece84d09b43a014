package otlpwire

import "github.com/servetrace/servetrace/internal/otlpwire/field"

// walk calls visit for each ResourceSpans, ScopeSpans and Span below p, in the order
// of the bytes: first the message, then the messages in it. p holds messages of kind k.
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

// CountSpans returns the number of spans of an encoded ExportTraceServiceRequest. It does
// not read inside the spans. Malformed bytes are an error that names the offset; the
// number then counts the spans before this offset.
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
// ExportTraceServiceRequest, in order. It does not read inside them. The result
// refers to req. Malformed bytes are an error that names the offset.
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
