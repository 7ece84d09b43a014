package datadogexporter

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// payload is a request of dd-trace-go to the agent that has not been answered yet.
type payload struct {
	path   string
	header http.Header
	body   []byte
	// chunks lists the chunks in the body; nil if the payload has no traces.
	chunks []chunk
}

// chunk is a part of a body of protocol 0.4: an array of spans.
type chunk struct {
	from, to int // offsets in the body
	spans    int
	// kept is the number of spans that Datadog keeps. It is all spans if the priority of the
	// chunk is above zero. Otherwise it is the spans that a rule for single spans selects.
	kept    int
	barrier bool // the encoder has added this chunk
}

// Names in a chunk of protocol 0.4.
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

// read parses a chunk and returns the bytes after it.
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

// spanFacts holds the parsed fields of a span.
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

// readMap calls value for each key of a map, with the bytes from the key's value on. value
// returns the bytes after the value. readMap returns the bytes after the map.
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

// withoutBarrier returns the payload without the chunk that the encoder has added, which is
// always the last chunk. The result may have no chunks.
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

// part returns a payload with the chunks from index first to index beyond, without beyond.
// There must be at least one.
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

// halves splits a payload with several chunks. Only the first half reports the traces that
// the tracer has dropped.
func (p payload) halves() (a, b payload) {
	a, b = p.part(0, len(p.chunks)/2), p.part(len(p.chunks)/2, len(p.chunks))
	b.header.Set(headerDroppedTraces, "0")
	b.header.Set(headerDroppedSpans, "0")
	return a, b
}

// kept returns the number of spans that Datadog keeps.
func (p payload) kept() int {
	sum := 0
	for _, c := range p.chunks {
		if !c.barrier {
			sum += c.kept
		}
	}
	return sum
}

// number returns a count from the header, or 0.
func (p payload) number(header string) int {
	n, _ := strconv.Atoi(p.header.Get(header))
	return n
}
