package datadogexporter

import (
	"testing"

	"github.com/servetrace/servetrace/pluginsdk"
)

// BenchmarkExport delivers batches to an agent that decodes them: many requests of
// two spans, and few traces of one span, as they come at 2,000 spans a second.
func BenchmarkExport(b *testing.B) {
	for name, batch := range map[string]func(i int) *pluginsdk.Batch{
		"2048 spans of two a trace": func(i int) *pluginsdk.Batch {
			return requests(i*1024, 1024, with(map[string]any{
				"http.request.method": "GET", "http.route": "/users/{id}", "server.address": "orders.example.com",
				"user.id": "u-1234567890", "http.response.status_code": 200, "items": 17,
			}))
		},
		"400 spans of one a trace": func(i int) *pluginsdk.Batch { return traces(i*400, 400) },
	} {
		b.Run(name, func(b *testing.B) {
			a := startAgent(b)
			e := open(b, a)
			batches := make([]*pluginsdk.Batch, 16)
			for i := range batches {
				batches[i] = batch(i)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := e.Export(b.Context(), batches[n%len(batches)]); err != nil {
					b.Fatal(err)
				}
				a.set(func(a *fakeAgent) { a.spans, a.heads, a.stats = nil, nil, nil })
				n++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*batches[0].Len()), "ns/span")
		})
	}
}
