package otlpexporter

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"github.com/servetrace/servetrace/pluginsdk"
)

// BenchmarkExport is one batch of 2,048 spans to a server that reads and answers,
// in this process; "client" is OpenTelemetry's own with its own gzip, of decoded
// messages that it encodes.
func BenchmarkExport(b *testing.B) {
	back := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer back.Close()
	batch := some(b, 2048)
	for _, compression := range []string{compressionNone, compressionGzip} {
		b.Run("ours/"+compression, func(b *testing.B) {
			e := open(b, env(EnvEndpoint+"="+back.URL, EnvCompression+"="+compression))
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Export(context.Background(), pluginsdk.NewBatch(batch)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("client/"+compression, func(b *testing.B) {
			how := otlptracehttp.NoCompression
			if compression == compressionGzip {
				how = otlptracehttp.GzipCompression
			}
			client := otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(back.URL+"/v1/traces"), otlptracehttp.WithCompression(how))
			if err := client.Start(context.Background()); err != nil {
				b.Fatal(err)
			}
			spans, err := pluginsdk.NewBatch(batch).Decode()
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if err := client.UploadTraces(context.Background(), spans); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
