package admin

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// capturing returns a started host with one plugin, and a server with its captures.
func capturing(t *testing.T) (*host.Host, *Server) {
	t.Helper()
	h, err := host.New(host.Config{Plugins: "p=" + testplugin.Install(t, "record")}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Shutdown(context.Background()) })
	s, err := NewServer(Config{Addr: "127.0.0.1:0"}, h.Stats, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.ServeCapture(func(plugin string) (*host.Capture, error) { return host.OpenCapture(h, plugin) })
	return h, s
}

// end ends spans with an attribute of this many bytes.
func end(t *testing.T, h *host.Host, n, size int) {
	t.Helper()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
	for i := range n {
		_, span := tracer.Start(t.Context(), fmt.Sprintf("span-%d-%s", i, strings.Repeat("x", size)))
		span.End()
	}
	if err := h.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestCapture: the answer has each batch as it comes, behind its length, and ends before
// the batch that exceeds the bytes. The trailer has the spans that it left out.
func TestCapture(t *testing.T) {
	h, s := capturing(t)
	server := httptest.NewServer(s.http.Handler)
	defer server.Close()
	resp, err := http.Get(server.URL + "/-/capture?seconds=60&bytes=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	end(t, h, 3, 1)
	var head [4]byte
	if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
		t.Fatal(err)
	}
	batch := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(resp.Body, batch); err != nil {
		t.Fatal(err)
	}
	if spans, err := otlpwire.CountSpans(batch); spans != 3 || err != nil {
		t.Errorf("%d spans, %v; want 3", spans, err)
	}
	end(t, h, 7, 2000)
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("%d more bytes, %v", len(rest), err)
	}
	if got := resp.Trailer.Get(HeaderMissed); got != "7" {
		t.Errorf("trailer %q, want 7 spans", got)
	}
}

// TestCaptureEndsInTime: a capture without spans ends after its seconds, and not before.
func TestCaptureEndsInTime(t *testing.T) {
	_, s := capturing(t)
	began := time.Now()
	w := ask(s.http.Handler, http.MethodGet, "/-/capture?seconds=1.25")
	if took := time.Since(began); w.Code != http.StatusOK || w.Body.Len() > 0 || took < 1250*time.Millisecond {
		t.Errorf("%d %q after %v", w.Code, w.Body, took)
	}
}

// TestCaptureRefused: requests that start no capture.
func TestCaptureRefused(t *testing.T) {
	_, s := capturing(t)
	off := Handler(sample)
	for _, c := range []struct {
		h      http.Handler
		target string
		header []string
		status int
		text   string
	}{
		{off, "/-/capture", nil, 403, "captures are off: set SERVE_ADMIN_CAPTURE=true and start the service again\n"},
		{s.http.Handler, "/-/capture", []string{"Sec-Fetch-Site", "cross-site"}, 403, "a page of another site cannot start a capture\n"},
		{s.http.Handler, "/-/capture", []string{"Host", "evil.example"}, 421, `host "evil.example" is not a name of this listener: use its IP address or localhost, or set SERVE_ADMIN_HOST to the name` + "\n"},
		{s.http.Handler, "/-/capture?seconds=0&bytes=x", nil, 400, "seconds=\"0\": want a number from 1 to 3600\nbytes=\"x\": want a number from 1 to 1073741824\n"},
		{s.http.Handler, "/-/capture?seconds=NaN", nil, 400, "seconds=\"NaN\": want a number from 1 to 3600\n"},
		{s.http.Handler, "/-/capture?plugin=q", nil, 404, "there is no such plugin: \"q\"; the plugins are p\n"},
	} {
		if w := ask(c.h, http.MethodGet, c.target, c.header...); w.Code != c.status || w.Body.String() != c.text {
			t.Errorf("%s: %d %q, want %d %q", c.target, w.Code, w.Body, c.status, c.text)
		}
	}
	if w := ask(s.http.Handler, http.MethodHead, "/-/capture"); w.Code != http.StatusOK {
		t.Errorf("HEAD: %d", w.Code)
	}
}
