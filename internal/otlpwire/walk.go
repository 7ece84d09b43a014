package otlpwire

import "github.com/servetrace/servetrace/internal/otlpwire/field"

// A visitor is told of each message of the three outer levels, in the order of
// the bytes: a resource's scopes and a scope's spans come after it.
type visitor interface {
	resource(part)
	scope(part)
	span(part)
}

// walk goes over the three outer levels of a request.
func walk[V visitor](req []byte, v V) error {
	c := part{req, 0}.fields()
	for c.next() {
		if !c.is(field.RequestResourceSpans) {
			continue
		}
		v.resource(c.here())
		if err := walkResource(c.here(), v); err != nil {
			return err
		}
	}
	return c.err()
}

func walkResource[V visitor](p part, v V) error {
	c := p.fields()
	for c.next() {
		if !c.is(field.ResourceSpansScopeSpans) {
			continue
		}
		v.scope(c.here())
		if err := walkScope(c.here(), v); err != nil {
			return err
		}
	}
	return c.err()
}

func walkScope[V visitor](p part, v V) error {
	c := p.fields()
	for c.next() {
		if c.is(field.ScopeSpansSpans) {
			v.span(c.here())
		}
	}
	return c.err()
}

// tally counts what a walk meets.
type tally struct{ resources, scopes, spans int }

func (t *tally) resource(part) { t.resources++ }
func (t *tally) scope(part)    { t.scopes++ }
func (t *tally) span(part)     { t.spans++ }

// CountSpans counts the spans of an encoded ExportTraceServiceRequest. It looks
// into no span. Malformed bytes give an error that names the offset, and the
// spans counted up to there.
func CountSpans(req []byte) (int, error) {
	var n tally
	err := walk(req, &n)
	return n.spans, err
}

// ResourceSpans returns the content of each ResourceSpans of an encoded
// ExportTraceServiceRequest, in order. It does not look into them. The result
// refers to req. Malformed bytes give an error that names the offset.
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

// Merge appends reqs to dst: encoded requests merge by concatenation, for the
// only known field of the message is a repeated one.
func Merge(dst []byte, reqs ...[]byte) []byte {
	for _, req := range reqs {
		dst = append(dst, req...)
	}
	return dst
}
