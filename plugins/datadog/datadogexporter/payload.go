package datadogexporter

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// payload is a request of dd-trace-go to the agent, with traces or statistics, that is to
// be sent to the agent.
type payload struct {
	path   string
	header http.Header
	body   []byte
	// chunks describes the chunks in the body. It is nil if the body has statistics.
	chunks []chunk
}

// chunk describes an array of spans of one trace. The body of a payload with traces is a
// list of such arrays, in Datadog's protocol 0.4.
type chunk struct {
	from, to int // offsets of the array in the body
	spans    int
	// kept is the number of spans that Datadog keeps. If the sampling priority of the chunk
	// is above zero, Datadog keeps all. Otherwise it keeps the spans that a rule for single
	// spans selects.
	kept    int
	barrier bool // the chunk has only the span of startBarrier
}

// Keys in an encoded span of protocol 0.4.
const (
	fieldName        = "name"
	fieldMetrics     = "metrics"
	metricPriority   = "_sampling_priority_v1"
	metricSingleSpan = "_dd.span_sampling.mechanism"
)

var errNoTraces = errors.New("the Datadog tracer made a payload that is not an array of traces")

func (p *payload) read() error {
	n, rest, err := msgp.ReadArrayHeaderBytes(p.body)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoTraces, err)
	}
	p.chunks = make([]chunk, 0, n)
	for range n {
		c := chunk{from: len(p.body) - len(rest)}
		if rest, err = c.read(rest); err != nil {
			return fmt.Errorf("%w: %w", errNoTraces, err)
		}
		c.to = len(p.body) - len(rest)
		p.chunks = append(p.chunks, c)
	}
	return nil
}

// read parses a chunk at the beginning of b, and returns the bytes after it.
func (c *chunk) read(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	c.spans = int(n)
	dropped, single := false, 0
	for i := 0; i < c.spans && err == nil; i++ {
		var s spanFacts
		b, err = s.read(b)
		dropped = dropped || s.dropped
		c.barrier = c.barrier || s.barrier
		if s.single {
			single++
		}
	}
	c.kept = c.spans
	if dropped {
		c.kept = single
	}
	return b, err
}

// spanFacts has facts about an encoded span. dropped reports that Datadog drops it
// because of its sampling priority. single reports that a rule for single spans keeps it
// nevertheless. barrier reports that it is the span of startBarrier.
type spanFacts struct{ dropped, single, barrier bool }

func (s *spanFacts) read(b []byte) ([]byte, error) {
	return readMap(b, func(key, b []byte) ([]byte, error) {
		switch string(key) {
		case fieldName:
			name, b, err := msgp.ReadStringZC(b)
			s.barrier = string(name) == barrierName
			return b, err
		case fieldMetrics:
			return readMap(b, s.readMetric)
		}
		return msgp.Skip(b)
	})
}

func (s *spanFacts) readMetric(key, b []byte) ([]byte, error) {
	switch string(key) {
	case metricPriority:
		priority, b, err := msgp.ReadFloat64Bytes(b)
		s.dropped = priority <= 0
		return b, err
	case metricSingleSpan:
		s.single = true
	}
	return msgp.Skip(b)
}

// readMap parses a map at the beginning of b, and returns the bytes after it. It calls
// value for each key, with the bytes that begin with the key's value. value returns the
// bytes after that.
func readMap(b []byte, value func(key, b []byte) ([]byte, error)) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err == nil {
			b, err = value(key, b)
		}
	}
	return b, err
}

// withoutBarrier returns the payload without the chunk that has the span of startBarrier.
// That chunk is always the last. The result may have no chunks.
func (p payload) withoutBarrier() payload {
	last := len(p.chunks) - 1
	switch {
	case last < 0 || !p.chunks[last].barrier:
		return p
	case last == 0:
		return payload{}
	}
	return p.part(0, last)
}

// part returns a payload with the chunks p.chunks[first:beyond], of which there must be
// at least one.
func (p payload) part(first, beyond int) payload {
	chunks := slices.Clone(p.chunks[first:beyond])
	from, to := chunks[0].from, chunks[len(chunks)-1].to
	head := msgp.AppendArrayHeader(nil, uint32(len(chunks)))
	for i := range chunks {
		chunks[i].from += len(head) - from
		chunks[i].to += len(head) - from
	}
	out := payload{path: p.path, header: p.header.Clone(), body: slices.Concat(head, p.body[from:to]), chunks: chunks}
	out.header.Set(headerTraceCount, strconv.Itoa(len(chunks)))
	return out
}

// halves splits a payload with several chunks into two payloads. Only the first has the
// number of dropped traces in its header, so that the agent counts them once.
func (p payload) halves() (a, b payload) {
	a, b = p.part(0, len(p.chunks)/2), p.part(len(p.chunks)/2, len(p.chunks))
	b.header.Set(headerDroppedTraces, "0")
	b.header.Set(headerDroppedSpans, "0")
	return a, b
}

// kept returns the number of spans in the payload that Datadog keeps. The span of
// startBarrier does not count.
func (p payload) kept() int {
	sum := 0
	for _, c := range p.chunks {
		if !c.barrier {
			sum += c.kept
		}
	}
	return sum
}

// number returns the number in a header of the request, or 0 if there is none.
func (p payload) number(header string) int {
	n, _ := strconv.Atoi(p.header.Get(header))
	return n
}
