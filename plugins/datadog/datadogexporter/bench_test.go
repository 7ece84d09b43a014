package datadogexporter

import (
	"testing"

	"github.com/servetrace/servetrace/pluginsdk"
)

// BenchmarkExport delivers batches of 1,024 requests of two spans to an agent
// that decodes them.
func BenchmarkExport(b *testing.B) {
	const size = 1024
	a := startAgent(b)
	e := open(b, a)
	batches := make([]*pluginsdk.Batch, 16)
	for i := range batches {
		batches[i] = requests(i*size, size, with(map[string]any{
			"http.request.method": "GET", "http.route": "/users/{id}", "server.address": "orders.example.com",
			"user.id": "u-1234567890", "http.response.status_code": 200, "items": 17,
		}))
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
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/(2*size), "ns/span")
}
