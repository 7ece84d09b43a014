package spanpath

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// The rows that other suites compare.
const (
	RowFloor   = rowFloor
	RowBSPHTTP = rowBSPHTTP
	RowOurs    = rowOurs
)

// Load is a shape made of numbers, for suites that vary one of them. No span
// may be lost in it.
type Load struct {
	// Producers is how many goroutines make spans, at least one.
	Producers int `json:"producers"`
	// Rate is how many spans they make a second, all together; zero: as many as
	// are taken.
	Rate int `json:"rate,omitempty"`
	// Attributes is how many a span has; zero: the six that it has elsewhere.
	Attributes int `json:"attributes,omitempty"`
	// Exporters is how many get every span: as many plugins, or as many batch
	// processors; zero: one. A span counts as delivered once it is so to all.
	Exporters int `json:"exporters,omitempty"`
	// Length is how long spans are made.
	Length time.Duration `json:"length_ns"`
}

// LoadCase gives the case of a row under a load, for another suite. One of an
// unknown row fails when it is run.
func LoadCase(of, shape, row string, l Load, repeats int) suite.Case {
	r, _ := findRow(row)
	return suite.Case{
		Suite: of, Shape: shape, Row: row, Doc: r.doc, Repeats: repeats,
		Run: func(ctx context.Context, env *suite.Env) (sample suite.Sample, err error) {
			err = env.Child(ctx, Name, order{Row: row, Shape: shape, Load: &l, Bin: env.Bin, Sink: env.Sink.Addresses}, &sample)
			return sample, err
		},
	}
}

// shape is the load as one.
func (l Load) shape() shape {
	s := shape{length: l.Length, drive: saturate(l.Producers), watched: true}
	if l.Rate > 0 {
		s.drive, s.watched = paced(l.Producers, l.Rate), false
		s.warm = paced(l.Producers, max(l.Rate, 1000))
	}
	return s
}

// room is how many spans may wait in our host: half of its bytes, as it counts
// those of a span and of each attribute.
func (l Load) room() uint64 {
	const span, each = 512, 128
	return min(mostWaiting, 16<<20/uint64(span+each*l.Attributes))
}

// Pipeline is an open row in the hands of another suite.
type Pipeline struct{ way *way }

// Open opens a row as a service does: without waiting for its plugins.
func Open(ctx context.Context, row, bin string, into sink.Addresses) (Pipeline, error) {
	r, err := findRow(row)
	if err != nil {
		return Pipeline{}, err
	}
	w, err := r.open(ctx, rig{sink: into, bin: bin, http: into.HTTP, hasty: true})
	return Pipeline{w}, err
}

// Span makes one span.
func (p Pipeline) Span() { p.way.produce()(0) }

// Ready returns when the plugins are ready, at once where there are none.
func (p Pipeline) Ready(ctx context.Context) error {
	if p.way.ready == nil {
		return nil
	}
	return p.way.ready(ctx)
}

// Flush returns when the spans so far are delivered.
func (p Pipeline) Flush(ctx context.Context) error { return p.way.flush(ctx) }

// Close ends it.
func (p Pipeline) Close(ctx context.Context) error { return p.way.close(ctx) }

// Plugins are the processes of its plugins.
func (p Pipeline) Plugins() []int {
	if p.way.plugins == nil {
		return nil
	}
	return p.way.plugins()
}

// produceMany makes spans like produceWith's with so many attributes: texts of
// some twenty bytes under keys of as many.
func produceMany(provider trace.TracerProvider, attributes int) func(i int) {
	tracer := provider.Tracer("github.com/servetrace/servetrace/serving")
	ctx := context.Background()
	keys, values := make([]string, attributes), make([]string, attributes)
	for a := range attributes {
		keys[a] = fmt.Sprintf("bench.attribute.n%03d", a)
		values[a] = strings.Repeat(string(rune('a'+a%26)), 20)
	}
	return func(int) {
		_, span := tracer.Start(ctx, "proxy_http_request GET /api/{id}", trace.WithSpanKind(trace.SpanKindServer))
		set := make([]attribute.KeyValue, attributes)
		for a := range set {
			set[a] = attribute.String(keys[a], values[a])
		}
		span.SetAttributes(set...)
		span.End()
	}
}
