package serving_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/internal/accesslog"

	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// TestAccessLogLevel: a status of 200 that is not the whole truth shows in the
// level, unless it was the client that left.
func TestAccessLogLevel(t *testing.T) {
	streams := func(w http.ResponseWriter, req *http.Request) error {
		writeBegin(w)
		<-req.Context().Done()
		return context.Cause(req.Context())
	}
	waits := func(_ http.ResponseWriter, req *http.Request) error {
		<-req.Context().Done()
		return nil
	}
	for _, tt := range []struct {
		name    string
		timeout bool
		handler serving.HandlerFunc
		leaves  bool
		status  float64
		level   string
	}{
		{name: "cut by the timeout", timeout: true, handler: streams, status: 200, level: "WARN"},
		{name: "timeout", timeout: true, handler: waits, status: 408, level: "INFO"},
		{name: "client left mid-stream", handler: streams, leaves: true, status: 200, level: "INFO"},
		{name: "failed mid-stream", handler: func(w http.ResponseWriter, _ *http.Request) error {
			writeBegin(w)
			return errBoom
		}, status: 200, level: "ERROR"},
		{name: "failed", handler: func(http.ResponseWriter, *http.Request) error { return errBoom }, status: 500, level: "ERROR"},
		{name: "whole", handler: func(http.ResponseWriter, *http.Request) error { return nil }, status: 200, level: "INFO"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := serving.Config{}
			if tt.timeout {
				cfg.RequestTimeout = roomyTimeout
			}
			r := start(t, cfg, tt.handler)
			c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = c.Read(make([]byte, 1)) // the response has begun, or is cut
			if tt.leaves {
				_ = c.Close()
			}
			line := r.access.take(t, "request", 1)[0]
			if line["level"] != tt.level || line["status"] != tt.status {
				t.Errorf("level %v, status %v, want %s, %v", line["level"], line["status"], tt.level, tt.status)
			}
		})
	}
}

// logged serves the apps with a log of this form.
func logged(t *testing.T, cfg serving.Config, form func(io.Writer) slog.Handler, apps ...*serving.App) *rig {
	t.Helper()
	r := &rig{t: t, spans: newSpanLog(), access: newLineLog(), client: &http.Client{Transport: &http.Transport{}}}
	cfg.HTTPAddr = "127.0.0.1:0"
	var err error
	r.server, err = serving.New(cfg, apps, serving.WithTracing(provider(t, r.spans)), serving.WithLogger(slog.New(form(r.access))))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return r
}

func debugJSON(w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})
}

// TestCallLines: a call by handle has a line at debug, with the ids of its
// replica span; what HTTP does in a replica has none.
func TestCallLines(t *testing.T) {
	callee := functions("B")
	ok := serving.AddFunction(callee, "ok", func(context.Context, int) (int, error) { return 1, nil })
	fails := serving.AddFunction(callee, "", func(context.Context, int) (int, error) { return 0, errBoom })
	entered := make(chan struct{})
	waits := serving.AddFunction(callee, "waits", func(ctx context.Context, _ int) (int, error) {
		close(entered)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	r := logged(t, serving.Config{}, debugJSON, serving.NewApp("a", serving.NewDeployment("A", serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
		_, _ = ok.Call(req.Context(), 0)
		_, _ = fails.Call(req.Context(), 0)
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := waits.Call(ctx, 0)
			done <- err
		}()
		<-entered
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})), serving.WithDeployments(callee)))
	if a := r.get("/", "X-Request-ID", "r-1"); a.Status != http.StatusOK {
		t.Fatalf("answer %+v", a)
	}
	r.access.take(t, "request", 1)
	spans := map[string]string{}
	for _, s := range r.spans.take(t, 9) {
		if method, is := attr(s, "call_method"); is && strings.HasPrefix(s.Name(), "replica_handle_request B") {
			spans[method.AsString()] = s.SpanContext().SpanID().String()
		}
	}
	var got []string
	for _, line := range r.access.take(t, "call", 3) {
		method, _ := line["call_method"].(string)
		if line["span_id"] != spans[method] {
			t.Errorf("span %v, want %s, in %v", line["span_id"], spans[method], line)
		}
		got = append(got, fmt.Sprint(line["level"], line["method"], method, line["code"], line["app"],
			line["deployment"], line["route"], line["request_id"], line["error"]))
	}
	want := []string{
		fmt.Sprint("DEBUG", "CALL", "ok", "OK", "a", "B", "/", "r-1", nil),
		fmt.Sprint("DEBUG", "CALL", "__call__", "ERROR", "a", "B", "/", "r-1", "boom"),
		fmt.Sprint("DEBUG", "CALL", "waits", "CANCELLED", "a", "B", "/", "r-1", "context canceled"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestQuietAccessLog: only what went wrong is told.
func TestQuietAccessLog(t *testing.T) {
	callee := functions("B")
	call := serving.AddFunction(callee, "", func(context.Context, int) (int, error) { return 1, nil })
	r := logged(t, serving.Config{QuietAccessLog: true}, debugJSON,
		serving.NewApp("a", serving.NewDeployment("A", serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
			_, err := call.Call(req.Context(), 0)
			if req.URL.Path == "/fails" {
				return errBoom
			}
			return err
		})), serving.WithDeployments(callee)))
	r.get("/")
	r.get("/fails")
	lines := r.access.take(t, "request", 1)
	if len(lines) != 1 || lines[0]["route"] != "/" || lines[0]["error"] != "boom" {
		t.Errorf("lines %v, want that of the failure", lines)
	}
	if calls := r.access.Lines(t, "call"); len(calls) != 0 {
		t.Errorf("calls %v", calls)
	}
}

// TestHostileTexts: whatever clients send, and handlers fail with, a request is
// one line, which a reader of its form takes apart into the same fields, and no
// character in it moves a terminal's cursor.
func TestHostileTexts(t *testing.T) {
	hostile := "/\n\r\x00\x1b[2J\u2028level=ERROR msg=\"request\" status=200\xff\u202e"
	long := "/" + strings.Repeat("é", 5000)
	forms := map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return tracing.NewLogHandler(slog.NewTextHandler(w, nil)) },
		"json": func(w io.Writer) slog.Handler { return tracing.NewLogHandler(slog.NewJSONHandler(w, nil)) },
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			r := logged(t, serving.Config{MaxHeaderBytes: 1 << 20}, form,
				serving.NewApp("a", serving.NewDeployment("D", serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
					return errors.New(req.URL.Path + long)
				})), serving.WithRoutePrefix("/a")))
			paths := []string{hostile, long, "/a" + hostile}
			for _, path := range paths {
				r.get((&url.URL{Path: path}).EscapedPath(), "X-Request-ID", "r-1\tmsg=evil")
			}
			var lines []string
			servingtest.Await(t, "three lines", func() bool {
				lines = strings.Split(strings.TrimSuffix(r.access.Text(), "\n"), "\n")
				return len(lines) >= len(paths)
			})
			if len(lines) != len(paths) {
				t.Fatalf("%d lines for %d requests:\n%s", len(lines), len(paths), strings.Join(lines, "\n"))
			}
			for i, line := range lines {
				if len(line) > 10_000 {
					t.Errorf("line %d has %d bytes", i, len(line))
				}
				if bytes.ContainsFunc([]byte(line), func(c rune) bool { return c < ' ' || c == '\x7f' || c == '\ufeff' }) {
					t.Errorf("line %d has control characters: %q", i, line)
				}
				if strings.Contains(line, "evil") {
					t.Errorf("line %d has the request id of the client: %s", i, line)
				}
				if name == "json" {
					var fields map[string]any
					if err := json.Unmarshal([]byte(line), &fields); err != nil {
						t.Errorf("line %d: %v in %s", i, err, line)
					} else if fields["msg"] != "request" || fields["level"] != "INFO" && i < 2 {
						t.Errorf("line %d says it is %v", i, fields)
					}
					continue
				}
				// Outside of quotes there are words, = and spaces only.
				bare := regexp.MustCompile(`"(\\.|[^"\\])*"`).ReplaceAllString(line, "Q")
				if !regexp.MustCompile(`^(\w+=[^\s"=]* ?)+$`).MatchString(bare) {
					t.Errorf("line %d comes apart: %s", i, bare)
				}
				if n := strings.Count(bare, "msg="); n != 1 {
					t.Errorf("line %d has %d messages: %s", i, n, bare)
				}
			}
		})
	}
}

// TestLogFieldsAreDocumented: the table of the document has the fields of a line
// that has all of them.
func TestLogFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/log.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "<!-- Fields: TestLogFieldsAreDocumented in package serving holds this table. -->\n")
	if !found {
		t.Fatal("the document has no table of fields")
	}
	var documented []string
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		for _, field := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			documented = append(documented, field[1])
		}
	}
	var written []string
	add := func(_ []string, a slog.Attr) slog.Attr {
		written = append(written, a.Key)
		return a
	}
	log := accesslog.Log{Logger: slog.New(slog.NewTextHandler(newLineLog(), &slog.HandlerOptions{ReplaceAttr: add}))}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	full := accesslog.Entry{
		Method: "m", RequestID: "x", Client: "x", Path: "x", Route: "x", App: "x", Deployment: "x",
		CallMethod: "x", Replica: "x", Err: errBoom,
	}
	log.Write(ctx, slog.LevelInfo, "request", full)
	full.Code = "OK"
	log.Write(ctx, slog.LevelInfo, "request", full)
	sorted := func(fields []string) []string {
		fields = slices.DeleteFunc(fields, func(f string) bool { return f == "time" || f == "level" || f == "msg" })
		slices.Sort(fields)
		return slices.Compact(fields)
	}
	if diff := cmp.Diff(sorted(written), sorted(documented)); diff != "" {
		t.Errorf("fields (-written +documented):\n%s", diff)
	}
}
