package otlpexporter

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/servetrace/servetrace/pluginsdk"
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
				got.Header.Get("X-Key") != "a b" || got.ContentLength <= 0 || got.UserAgent() != "servetrace-otlp-exporter/"+pluginsdk.Version()+" (Go)" {
				t.Errorf("request is %s %s, %v, of %d bytes", got.Method, got.URL, got.Header, got.ContentLength)
			}
			if want := some(t, 1); !bytes.Equal(got.body, want) {
				t.Errorf("body is %x, want %x", got.body, want)
			}
		})
	}
}

// TestAnswers: the result of each status for the host, and its text for the operator.
func TestAnswers(t *testing.T) {
	status := func(m *statuspb.Status) string { return string(encode(t, m)) }
	partial := func(n int64, text string) string {
		return string(encode(t, &coltracepb.ExportTraceServiceResponse{
			PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: n, ErrorMessage: text},
		}))
	}
	const again, final, taken = "again", "final", "taken"
	for _, c := range []struct {
		name    string
		code    int
		header  []string // name, value, …
		body    string
		kind    string // taken, again or final
		counted string // the code in the delivery accounting, if final
		after   time.Duration
		want    string // URL stands for the server's
	}{
		{name: "200", code: 200, kind: taken},
		{name: "202", code: 202, body: "whatever", kind: taken},
		{name: "broken protobuf", code: 200, header: []string{"Content-Type", kindProto}, body: "\xff\xff", kind: taken},
		{name: "a friendly text", code: 200, header: []string{"Content-Type", "text/html"}, body: "OK", kind: taken},
		{name: "broken JSON", code: 200, header: []string{"Content-Type", kindJSON}, body: "{", kind: taken},
		{
			name: "partial success", code: 200, header: []string{"Content-Type", kindProto}, body: partial(3, "too\nold\x1b[31m"),
			want: `3 spans rejected: too old\x1b[31m`,
		},
		{
			name: "partial success without a type", code: 200, header: []string{"Content-Type", ""}, body: partial(3, "too old"),
			want: "3 spans rejected: too old",
		},
		{
			name: "partial success without a reason", code: 200, header: []string{"Content-Type", kindProto}, body: partial(2, ""),
			want: "2 spans rejected: the back end gave no reason",
		},
		{
			name: "a warning", code: 200, header: []string{"Content-Type", kindProto}, body: partial(0, "deprecated"),
			want: "0 spans rejected: deprecated",
		},
		{name: "nothing partial", code: 200, header: []string{"Content-Type", kindProto}, body: partial(0, ""), kind: taken},
		{
			name: "partial success in JSON", code: 200, header: []string{"Content-Type", "application/json; charset=utf-8"},
			body: `{"partialSuccess":{"rejectedSpans":"5","errorMessage":"no"}}`, want: "5 spans rejected: no",
		},
		{
			name: "partial success with a number", code: 200, header: []string{"Content-Type", kindJSON},
			body: `{"partialSuccess":{"rejectedSpans":5}}`, want: "5 spans rejected: the back end gave no reason",
		},
		{
			name: "web page", code: 200, header: []string{"Content-Type", "text/html; charset=utf-8"},
			body: "<!doctype html><TITLE>Grafana </TITLE>", kind: final, counted: "FAILED_PRECONDITION",
			want: `URL answered 200 OK with a web page called "Grafana", so it is not a receiver of OTLP: check host, port and path in OTEL_EXPORTER_OTLP_ENDPOINT`,
		},
		{
			name: "gRPC", code: 200, header: []string{"Content-Type", "application/grpc+proto", "Grpc-Status", "12"}, kind: final, counted: "FAILED_PRECONDITION",
			want: `URL speaks gRPC, not OTLP/HTTP (it answered 200 OK as application/grpc+proto): ` +
				`set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use the receiver's port for HTTP, usually 4318`,
		},
		{
			name: "400", code: 400, header: []string{"Content-Type", kindProto}, body: status(&statuspb.Status{Message: "bad wire type"}),
			kind: final, counted: "INVALID_ARGUMENT", want: `URL answered 400 Bad Request: "bad wire type"`,
		},
		{
			name: "TLS wanted", code: 400, body: "<center>The plain HTTP request was sent to HTTPS port</center>", kind: final, counted: "FAILED_PRECONDITION",
			want: `URL answered 400 Bad Request: "<center>The plain HTTP request was sent to HTTPS port</center>"; ` +
				`it wants TLS: write https:// in OTEL_EXPORTER_OTLP_ENDPOINT`,
		},
		{
			name: "401", code: 401, body: "no key 5ecre7-value for you", kind: final, counted: "UNAUTHENTICATED",
			want: `URL answered 401 Unauthorized: "no key <redacted> for you"; check the headers in OTEL_EXPORTER_OTLP_HEADERS (sent: x-key)`,
		},
		{
			name: "403", code: 403, kind: final, counted: "PERMISSION_DENIED",
			want: `URL answered 403 Forbidden; check the headers in OTEL_EXPORTER_OTLP_HEADERS (sent: x-key)`,
		},
		{
			name: "404", code: 404, header: []string{"Content-Type", "text/html"}, body: "<html><title>404 Not Found</title>", kind: final,
			counted: "NOT_FOUND",
			want:    `URL answered 404 Not Found: "a web page called \"404 Not Found\""; check host, port and path in OTEL_EXPORTER_OTLP_ENDPOINT`,
		},
		{
			name: "407", code: 407, kind: final, counted: "UNAUTHENTICATED",
			want: `URL answered 407 Proxy Authentication Required; the proxy wants credentials: ` +
				`put them into the proxy's variable, as http://USER:PASSWORD@PROXY:PORT`,
		},
		{name: "408", code: 408, kind: final, counted: "INVALID_ARGUMENT", want: "URL answered 408 Request Timeout"},
		{
			name: "413", code: 413, body: "too big", kind: final, counted: "RESOURCE_EXHAUSTED",
			want: `URL answered 413 Request Entity Too Large: "too big"; the batch has 108 bytes before compression: ` +
				`raise the receiver's limit, or lower SERVE_TRACING_BATCH_BYTES`,
		},
		{
			name: "415", code: 415, kind: final, counted: "INVALID_ARGUMENT",
			want: "URL answered 415 Unsupported Media Type; check host, port and path in OTEL_EXPORTER_OTLP_ENDPOINT",
		},
		{
			name: "a long answer", code: 422, body: strings.Repeat("é\r\n\t", 1000), kind: final, counted: "INVALID_ARGUMENT",
			want: `URL answered 422 Unprocessable Entity: "` + strings.Repeat("é ", 100) + `…"`,
		},
		{name: "500", code: 500, kind: final, counted: "INTERNAL", want: "URL answered 500 Internal Server Error"},
		{
			name: "502", code: 502, header: []string{"Content-Type", kindJSON}, body: `{"code":14,"message":"down"}`, kind: again,
			want: `URL answered 502 Bad Gateway: "down"`,
		},
		{
			name: "503 for a time", code: 503, header: []string{"Retry-After", "7"}, body: "later", kind: again, after: 7 * time.Second,
			want: `URL answered 503 Service Unavailable: "later"`,
		},
		{
			name: "503 until a time", code: 503,
			header: []string{"Retry-After", "Mon, 02 Jan 2006 15:04:35 GMT", "Date", "Mon, 02 Jan 2006 15:04:05 GMT"}, kind: again, after: 30 * time.Second,
			want: "URL answered 503 Service Unavailable",
		},
		{
			name: "503 until a time that is over", code: 503,
			header: []string{"Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT", "Date", "Mon, 02 Jan 2006 15:05:05 GMT"}, kind: again,
			want: "URL answered 503 Service Unavailable",
		},
		{
			name: "503 for ever", code: 503, header: []string{"Retry-After", "99999999999999999"}, kind: again, after: 24 * time.Hour,
			want: "URL answered 503 Service Unavailable",
		},
		{name: "503 at no time", code: 503, header: []string{"Retry-After", "soon"}, kind: again, want: "URL answered 503 Service Unavailable"},
		{
			name: "429 with RetryInfo", code: 429, header: []string{"Content-Type", kindProto}, kind: again, after: 1500 * time.Millisecond,
			body: status(&statuspb.Status{Message: "slow down", Details: []*anypb.Any{
				anyOf(t, &errdetails.ErrorInfo{Reason: "quota"}), anyOf(t, &errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)}),
			}}),
			want: `URL answered 429 Too Many Requests: "slow down"`,
		},
		{name: "504", code: 504, header: []string{"Content-Type", kindProto}, body: "\xff", kind: again, want: "URL answered 504 Gateway Timeout"},
		{
			name: "301", code: 301, header: []string{"Location", "/v1/traces/"}, kind: final, counted: "FAILED_PRECONDITION",
			want: "URL answered 301 Moved Permanently; it redirects to URL/, where spans and headers are not sent: " +
				"if that is right, set it in OTEL_EXPORTER_OTLP_ENDPOINT",
		},
		{
			name: "307 to another machine", code: 307, header: []string{"Location", "http://user:pw@evil.example/?q"}, kind: final, counted: "FAILED_PRECONDITION",
			want: "URL answered 307 Temporary Redirect; it redirects to http://evil.example/?…, where spans and headers are not sent: " +
				"if that is right, set it in OTEL_EXPORTER_OTLP_ENDPOINT",
		},
		{
			name: "307 to nowhere", code: 307, kind: final, counted: "FAILED_PRECONDITION",
			want: "URL answered 307 Temporary Redirect; it redirects to nowhere: check host, port and path in OTEL_EXPORTER_OTLP_ENDPOINT",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			back := receive(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i+1 < len(c.header); i += 2 {
					w.Header().Set(c.header[i], c.header[i+1])
					if c.header[i+1] == "" {
						w.Header()["Content-Type"] = nil // not sniffed
					}
				}
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			})
			err := export(t, open(t, env(EnvEndpoint+"="+back.URL, EnvHeaders+"=x-key=Bearer 5ecre7-value")))
			if n := len(back.all()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			if c.kind == taken {
				if err != nil {
					t.Errorf("got %v, want delivered", err)
				}
				return
			}
			if err == nil {
				t.Fatal("got delivered, want an error")
			}
			if _, _, isPartial := pluginsdk.Rejected(err); isPartial != (c.kind == "") {
				t.Errorf("partial success is %v: %v", isPartial, err)
			}
			got := asHost(err)
			if text, want := got.Error(), strings.ReplaceAll(c.want, "URL", back.URL+"/v1/traces"); text != want {
				t.Errorf("\ngot  %s\nwant %s", text, want)
			}
			if c.kind == again {
				c.counted = "UNAVAILABLE"
			}
			if c.kind != "" && (got.Code != c.counted || got.Final != (c.kind == final) || got.After != c.after) {
				t.Errorf("the host reads %s, final %v, after %v, want %s and %v", got.Code, got.Final, got.After, c.counted, c.after)
			}
		})
	}
}

func anyOf(tb testing.TB, m proto.Message) *anypb.Any {
	tb.Helper()
	packed, err := anypb.New(m)
	if err != nil {
		tb.Fatal(err)
	}
	return packed
}

// TestHeadersOfThePlugin describe anything but the message.
func TestHeadersOfThePlugin(t *testing.T) {
	back := receive(t, nil)
	e, err := NewWith(t.Context(), env(EnvEndpoint+"="+back.URL), Defaults{
		Headers: map[string]string{"content-type": "text/plain", "user-agent": "acme/1", "x-own": "own"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := export(t, e); err != nil {
		t.Fatal(err)
	}
	if got := back.last(t).Header; got.Get("Content-Type") != kindProto || got.Get("User-Agent") != "acme/1" || got.Get("X-Own") != "own" {
		t.Errorf("headers are %v", got)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
