package otlpexporter

import (
	"bytes"
	"net/http"
	"testing"
)

func TestBatchArrives(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			back := receive(t, nil)
			e := open(t, env(EnvEndpoint+"="+back.URL, EnvCompression+"="+compression, EnvHeaders+"=x-key=a%20b"))
			if err := export(t, e); err != nil {
				t.Fatal(err)
			}
			got := back.last(t)
			if got.Method != http.MethodPost || got.URL.Path != "/v1/traces" || got.Header.Get("Content-Type") != kindProto ||
				got.Header.Get("X-Key") != "a b" || got.ContentLength <= 0 {
				t.Errorf("request is %s %s, %v, of %d bytes", got.Method, got.URL, got.Header, got.ContentLength)
			}
			if want := some(t, 1); !bytes.Equal(got.body, want) {
				t.Errorf("body is %x, want %x", got.body, want)
			}
		})
	}
}
