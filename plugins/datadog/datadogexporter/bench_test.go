package datadogexporter

import (
	"encoding/binary"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// BenchmarkEncode turns a batch of traces of one span into a payload: a server's
// span of six attributes, of a resource of six.
func BenchmarkEncode(b *testing.B) {
	const size = 2048
	spans := make([]*tracepb.Span, 0, size)
	for i := range size {
		spans = append(spans, span(1, 1, 0, kind(tracepb.Span_SPAN_KIND_SERVER), with(map[string]any{
			"http.request.method": "GET", "http.route": "/users/{id}", "server.address": "orders.example.com",
			"user.id": "u-1234567890", "http.response.status_code": 200, "items": 17,
		}), func(s *tracepb.Span) {
			binary.BigEndian.PutUint64(s.GetTraceId()[8:], uint64(i+1))
			binary.BigEndian.PutUint64(s.GetSpanId(), uint64(i+1))
		}))
	}
	request := batch(map[string]any{
		"service.name": "orders", "service.version": "1.2.3", "host.name": "host-1",
		"telemetry.sdk.language": "go", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.version": "1.47.0",
	}, spans...).Bytes()
	for name, f := range map[string]form{"v0.4": {events: true}, "v1.0": {v1: true, events: true}} {
		b.Run(name, func(b *testing.B) {
			c := newCoder(&mapping{})
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				if err := c.sort(request); err != nil {
					b.Fatal(err)
				}
				p, err := c.encode(c.batch.chunks, size, fullPayload, f)
				if err != nil || p.chunks != size {
					b.Fatal(p.chunks, err)
				}
				bytes = len(p.body)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/span")
			b.ReportMetric(float64(bytes)/size, "B/span-on-the-wire")
		})
	}
}
