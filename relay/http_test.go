package relay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/relay"
)

// overHTTP makes a rig listen at a free port for HTTP, and not at a socket.
func overHTTP(_ *host.Config, c *relay.Config) { c.Socket, c.HTTPAddr = "", "127.0.0.1:0" }

// TestStockHTTPExporter sends spans with OpenTelemetry's exporter, plain and compressed.
func TestStockHTTPExporter(t *testing.T) {
	r := startRig(t, "record", overHTTP)
	for name, compression := range map[string]otlptracehttp.Compression{"plain": otlptracehttp.NoCompression, "gzip": otlptracehttp.GzipCompression} {
		t.Run(name, func(t *testing.T) {
			exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(r.endpoint(t, "http")+"/v1/traces"), otlptracehttp.WithCompression(compression))
			if err != nil {
				t.Fatal(err)
			}
			endSpans(t, exporter, name, 3000)
			r.wantSpans(t, name, 3000)
		})
	}
}

// post sends a request and returns the answer with its body.
func (r *rig) post(t *testing.T, path, kind string, body []byte, header ...string) (answered, []byte) {
	t.Helper()
	url, transport := r.endpoint(t, "http"), &http.Transport{DisableKeepAlives: true}
	if socket, ok := strings.CutPrefix(url, "unix://"); ok {
		url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header}, answer
}

// answered is the status and the header of an answer of HTTP.
type answered struct {
	StatusCode int
	Header     http.Header
}

const (
	typeProto = "application/x-protobuf"
	typeJSON  = "application/json"
)

// encoded returns a request of spans in protobuf.
func encoded(t *testing.T, request *coltracepb.ExportTraceServiceRequest) []byte {
	t.Helper()
	data, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// zstandard compresses data in one frame with a window of this size.
func zstandard(t *testing.T, data []byte, window int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(window))
	if err == nil {
		_, err = w.Write(data)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// jsonSpan is a span in OTLP/JSON, with an unknown member, a 64-bit number as text and
// an enumeration as a number.
const jsonSpan = `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",
	"spanId":"eee19b7ec3c1b174","name":"j-0","kind":2,"startTimeUnixNano":"1544712660000000000","later":{"x":1}}]}]}]}`

func TestHTTPAnswers(t *testing.T) {
	r := startRig(t, "record", overHTTP, func(h *host.Config, c *relay.Config) {
		h.QueueBytes, h.MaxSpanBytes, h.BatchBytes = 1<<20, 10_000, 100_000
		c.MaxRequestBytes = 600_000
	})
	large := encoded(t, requestOf("g", 700, 1000))
	for _, c := range []struct {
		name, kind string
		path       string // default: /v1/traces
		body       []byte
		header     []string
		status     int
		code       codes.Code
		text       string
	}{
		{name: "protobuf", kind: typeProto, body: encoded(t, requestOf("a", 3, 10)), status: 200},
		{name: "with a parameter", kind: typeProto + "; charset=x", body: encoded(t, requestOf("b", 3, 10)), status: 200},
		{name: "gzip", kind: typeProto, body: zipped(t, encoded(t, requestOf("c", 3, 10))), header: []string{"Content-Encoding", "gzip"}, status: 200},
		{name: "JSON", kind: typeJSON, body: []byte(jsonSpan), status: 200},
		{name: "JSON in gzip", kind: typeJSON, body: zipped(t, []byte(strings.ReplaceAll(jsonSpan, "j-0", "z-0"))), header: []string{"Content-Encoding", "gzip"}, status: 200},
		{name: "delivered", kind: typeProto, body: encoded(t, requestOf("d", 3, 10)), header: []string{relay.HeaderWait, "delivered"}, status: 200},
		{name: "large spans", kind: typeProto, body: encoded(t, requestOf("e", 2, 20_000)), status: 200, text: "2 spans are larger than SERVE_TRACING_MAX_SPAN_BYTES"},
		{name: "large spans in JSON", kind: typeJSON, body: []byte(strings.ReplaceAll(jsonSpan, "j-0", strings.Repeat("x", 20_000))), status: 200, text: "1 spans are larger"},
		{name: "not protobuf", kind: typeProto, body: []byte("\x0a\xff"), status: 400, code: codes.InvalidArgument, text: "malformed"},
		{name: "not JSON", kind: typeJSON, body: []byte("{"), status: 400, code: codes.InvalidArgument, text: "not OTLP/JSON"},
		{name: "wrong id", kind: typeJSON, body: []byte(strings.ReplaceAll(jsonSpan, "eee19b", "zzzzzz")), status: 400, code: codes.InvalidArgument, text: "16 hexadecimal digits"},
		{name: "not gzip", kind: typeProto, body: []byte("x"), header: []string{"Content-Encoding", "gzip"}, status: 400, code: codes.InvalidArgument, text: "gzip"},
		{name: "large", kind: typeProto, body: large, status: 413, code: codes.ResourceExhausted, text: "larger than 600000 bytes"},
		{name: "large after decompression", kind: typeProto, body: zipped(t, large), header: []string{"Content-Encoding", "gzip"}, status: 413, code: codes.ResourceExhausted, text: "larger than 600000 bytes"},
		{name: "larger than a sender's room", kind: typeProto, body: encoded(t, requestOf("f", 500, 1000)), status: 413, code: codes.ResourceExhausted, text: "request"},
		{name: "media type", kind: "text/plain", body: []byte("x"), status: 415, text: `Content-Type "text/plain": want application/x-protobuf or application/json`},
		{name: "zstd", kind: typeProto, body: zstandard(t, encoded(t, requestOf("s", 3, 10)), 1<<20), header: []string{"Content-Encoding", "zstd"}, status: 200},
		{name: "not zstd", kind: typeProto, body: []byte("x"), header: []string{"Content-Encoding", "zstd"}, status: 400, code: codes.InvalidArgument, text: "zstd"},
		{name: "zstd that is cut", kind: typeProto, body: zstandard(t, large, 1<<20)[:100], header: []string{"Content-Encoding", "zstd"}, status: 400, code: codes.InvalidArgument, text: "zstd"},
		{name: "zstd, large after decompression", kind: typeProto, body: zstandard(t, large, 1<<20), header: []string{"Content-Encoding", "zstd"}, status: 413, code: codes.ResourceExhausted, text: "larger than 600000 bytes"},
		{name: "zstd with a window of 16 MiB", kind: typeProto, body: zstandard(t, make([]byte, 17<<20), 16<<20), header: []string{"Content-Encoding", "zstd"}, status: 400, code: codes.InvalidArgument, text: "window size"},
		{name: "compression", kind: typeProto, body: []byte("x"), header: []string{"Content-Encoding", "br"}, status: 415, code: codes.InvalidArgument, text: `Content-Encoding "br": want gzip, zstd or none`},
		{name: "unknown wait", kind: typeProto, body: nil, header: []string{relay.HeaderWait, "soon"}, status: 400, code: codes.InvalidArgument, text: `want delivered or accepted`},
		{name: "metrics", kind: typeProto, path: "/v1/metrics", status: 404, code: codes.Unimplemented, text: "/v1/metrics: this relay takes traces only, at /v1/traces"},
		{name: "logs", kind: typeJSON, path: "/v1/logs", status: 404, code: codes.Unimplemented, text: "/v1/logs: this relay takes traces only, at /v1/traces"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path == "" {
				c.path = "/v1/traces"
			}
			resp, body := r.post(t, c.path, c.kind, c.body, c.header...)
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, c.status, body)
			}
			kind, _, _ := strings.Cut(c.kind, ";")
			if c.status == 415 && c.code == codes.OK {
				if !strings.Contains(string(body), c.text) {
					t.Errorf("body %q, want %q", body, c.text)
				}
				return
			}
			if got := resp.Header.Get("Content-Type"); got != kind {
				t.Errorf("Content-Type %q, want %q", got, kind)
			}
			st, success := &statuspb.Status{}, &coltracepb.ExportTraceServiceResponse{}
			var message proto.Message = success
			if c.status != 200 {
				message = st
			}
			unmarshal := proto.Unmarshal
			if kind == typeJSON {
				unmarshal = protojson.Unmarshal
			}
			if err := unmarshal(body, message); err != nil {
				t.Fatalf("body %q: %v", body, err)
			}
			text := st.GetMessage() + success.GetPartialSuccess().GetErrorMessage()
			if codes.Code(st.GetCode()) != c.code || !strings.Contains(text, c.text) || c.text == "" && text != "" { //nolint:gosec // codes are small
				t.Errorf("answer %v %q, want %v %q", codes.Code(st.GetCode()), text, c.code, c.text) //nolint:gosec // as above
			}
		})
	}
	for _, prefix := range []string{"a", "b", "c", "d"} {
		r.wantSpans(t, prefix, 3)
	}
	r.wantSpans(t, "j", 1)
	r.wantSpans(t, "z", 1)
	r.wantSpans(t, "s", 3)
}

// TestBombs: a request that is small, and huge after decompression, costs no more memory
// than the largest request does.
func TestBombs(t *testing.T) {
	r := startRig(t, "record", overHTTP)
	const blocks, block = 8 << 10, 128 << 10 // 1 GiB
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3}
	for i := range blocks {
		head := block<<3 | 1<<1 // a byte, repeated
		if i == blocks-1 {
			head |= 1
		}
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16), 0) //nolint:gosec // parts of the number
	}
	members := bytes.Repeat(zipped(t, make([]byte, 1<<20)), 1<<10)
	for encoding, body := range map[string][]byte{"zstd": frame, "gzip": members} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		resp, answer := r.post(t, "/v1/traces", typeProto, body, "Content-Encoding", encoding)
		runtime.ReadMemStats(&after)
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(answer), "larger than 16777216 bytes") {
			t.Errorf("%s of 1 GiB in %d bytes: %d %q, want 413", encoding, len(body), resp.StatusCode, answer)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
			t.Errorf("%s of 1 GiB takes %d MiB", encoding, used>>20)
		}
	}
}

// TestManyObjectsInJSON: a small document with a million empty spans would need 450 MB.
func TestManyObjectsInJSON(t *testing.T) {
	r := startRig(t, "record", overHTTP)
	for n, want := range map[int]string{1<<18 - 3: "262141 spans, at most 65536", 1<<18 - 2: "262145 opening braces, more than the 262144 that are allowed in JSON"} {
		document := `{"resourceSpans":[{"scopeSpans":[{"spans":[{}` + strings.Repeat(`,{}`, n-1) + `]}]}]}`
		resp, body := r.post(t, "/v1/traces", typeJSON, []byte(document))
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(body), want) {
			t.Errorf("%d spans: %d %s, want 413 and %q", n, resp.StatusCode, body, want)
		}
	}
}

func TestLargeJSON(t *testing.T) {
	r := startRig(t, "record", overHTTP)
	document := []byte(`{"resourceSpans":[` + strings.Repeat("{},", 2<<20) + `{}]}`)
	resp, body := r.post(t, "/v1/traces", typeJSON, zipped(t, document), "Content-Encoding", "gzip")
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(body), "more than the 4194304 that are allowed in JSON") {
		t.Errorf("answer %d %s, want 413", resp.StatusCode, body)
	}
}

func TestHTTPMethod(t *testing.T) {
	r := startRig(t, "record", overHTTP)
	resp, err := http.Get(r.endpoint(t, "http") + "/v1/traces") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: status %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestFullHostPushesBackHTTP(t *testing.T) {
	r := startRig(t, "hang", overHTTP, func(h *host.Config, _ *relay.Config) {
		h.QueueBytes, h.MaxSpanBytes, h.BatchBytes = 1<<20, 10_000, 100_000
	})
	body := encoded(t, requestOf("x", 50, 1000))
	for range 100 {
		resp, answer := r.post(t, "/v1/traces", typeProto, body)
		if resp.StatusCode == http.StatusOK {
			continue
		}
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("status %d, Retry-After %q: %s", resp.StatusCode, resp.Header.Get("Retry-After"), answer)
		}
		return
	}
	t.Error("the host never pushes back")
}

// TestHTTPHealthAndStop checks health and readiness, over a Unix socket, before and
// during the stop.
func TestHTTPHealthAndStop(t *testing.T) {
	r := startRig(t, "slow:500ms", func(_ *host.Config, c *relay.Config) {
		c.HTTPAddr, c.Socket = "unix://"+c.Socket, ""
	})
	socket := strings.TrimPrefix(r.endpoint(t, "http"), "unix://")
	conn := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer conn.CloseIdleConnections()
	get := func(path string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := conn.RoundTrip(req)
		if err != nil {
			return 0, err
		}
		_ = resp.Body.Close()
		return resp.StatusCode, nil
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, err := get(path); code != http.StatusOK || err != nil {
			t.Errorf("%s: %d, %v", path, code, err)
		}
	}
	waited := make(chan int, 1)
	go func() {
		resp, _ := r.post(t, "/v1/traces", typeProto, encoded(t, requestOf("w", 2, 10)), relay.HeaderWait, relay.WaitDelivered)
		waited <- resp.StatusCode
	}()
	waitForWaiting(t, r, 2)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if code := <-waited; code != http.StatusOK {
		t.Errorf("the request in progress: %d, want 200", code)
	}
	if code, err := get("/readyz"); err == nil {
		t.Errorf("the relay answers after Shutdown: %d", code)
	}
}
