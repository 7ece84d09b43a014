package serving_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/servetrace/servetrace/serving"
)

// TestResetDuringInformation: a client resets each stream about when the handler sends a
// 1xx response. net/http then encodes the headers on a goroutine of its own, and a write to
// the same map would end the process.
func TestResetDuringInformation(t *testing.T) {
	running := make(chan struct{}, 1)
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 40 {
			w.Header().Set(fmt.Sprintf("X-%d", i), "value")
		}
		running <- struct{}{}
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-Late", "value")
		w.WriteHeader(http.StatusOK)
	}))
	conn, err := net.Dial("tcp", r.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	defer func() { <-read }()
	defer func() { _ = conn.Close() }()
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, conn) // ends when the connection is closed
	}()
	var out bytes.Buffer
	enc := hpack.NewEncoder(&out)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: "x"},
	} {
		if err := enc.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	head := bytes.Clone(out.Bytes())
	framer := http2.NewFramer(conn, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	const streams = 400
	for i := range uint32(streams) {
		stream := 2*i + 1
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		<-running
		if err := framer.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.get("/"); got.Status != http.StatusOK || got.header.Get("X-Late") != "value" || got.header.Get("X-7") != "value" {
		t.Errorf("after %d resets: %+v", streams, got)
	}
}

// TestInformationBeforeContinue: the deadline of a 1xx response does not end the write of
// the status 100, which net/http makes when the handler reads the body.
func TestInformationBeforeContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFake(t, stalls, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
			w.WriteHeader(http.StatusEarlyHints)
			time.Sleep(3 * stalls.StallTimeout)
			_, err := io.Copy(w, req.Body)
			return err
		}))
		c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
		in := bufio.NewReader(c)
		for _, want := range []string{"HTTP/1.1 103 Early Hints\r\n", "\r\n", "HTTP/1.1 100 Continue\r\n", "\r\n"} {
			if line, err := in.ReadString('\n'); line != want || err != nil {
				t.Fatalf("%q, %v; want %q", line, err, want)
			}
		}
		if _, err := io.WriteString(c, "abc"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(body) != "abc" || err != nil {
			t.Errorf("%s %q, %v; want 200 abc", resp.Status, body, err)
		}
	})
}

// TestShortBody: a handler that writes less than it has declared has failed, and the client
// notices it.
func TestShortBody(t *testing.T) {
	for _, part := range []string{"", "begin"} {
		r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, part)
		}))
		if got := r.get("/"); !got.Cut || !strings.HasPrefix(part, got.Body) {
			t.Errorf("%q: %+v, want a cut response", part, got)
		}
		line := r.access.take(t, "request", 1)[0]
		want := fmt.Sprintf("handler wrote %d bytes of a body with Content-Length 10", len(part))
		if line["error"] != want || line["level"] != "ERROR" || line["status"] != float64(http.StatusOK) {
			t.Errorf("%q: access log line %v, want the error %q", part, line, want)
		}
		for _, s := range r.spans.take(t, 3) {
			if strings.HasPrefix(s.Name(), "proxy_http_request") && s.Status().Description != want {
				t.Errorf("%q: span status %v, want %q", part, s.Status(), want)
			}
		}
	}
}
