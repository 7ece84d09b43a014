package otlpexporter

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
)

// TestOddAnswersAreWarnedOf: a successful answer that is not OTLP counts as delivered,
// and is logged once.
func TestOddAnswersAreWarnedOf(t *testing.T) {
	taken := string(encode(t, &coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{}}))
	for _, c := range []struct {
		name, kind, body string
		want             string // part of the warning; empty: none
	}{
		{"nothing", kindProto, "", ""},
		{"OTLP", kindProto, taken, ""},
		{"OTLP without a type", "", taken, ""},
		{"JSON", kindJSON, `{}`, ""},
		{"JSON of a later version", kindJSON, `{"partialSuccess":{},"later":1}`, ""},
		{"nothing, in a type of its own", "text/plain", "", ""},
		{"bytes", kindProto, "\xff\xfe\xfd", `body=\xff\xfe\xfd`},
		{"broken JSON", kindJSON, `{`, "body={"},
		{"text", "text/plain", "thank you, 5ecre7-value", `error="its type is \"text/plain\"" body="thank you, <redacted>"`},
		{"zeros", kindProto, strings.Repeat("\x00", maxAnswer+1), "it is longer than 65536 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			back := receive(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.kind}
				_, _ = io.WriteString(w, c.body)
			})
			var log bytes.Buffer
			s := env(EnvEndpoint+"="+back.URL, EnvHeaders+"=x-key=5ecre7-value")
			s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			e := open(t, s)
			for range 3 {
				if err := export(t, e); err != nil {
					t.Errorf("got %v, want delivered", err)
				}
			}
			if n := strings.Count(log.String(), "answer is not OTLP"); (c.want != "") != (n == 1) || !strings.Contains(log.String(), c.want) ||
				c.want != "" && !strings.Contains(log.String(), "endpoint="+back.URL+"/v1/traces status=\"200 OK\"") {
				t.Errorf("warned %d times, want %q: %s", n, c.want, log.String())
			}
		})
	}
}
