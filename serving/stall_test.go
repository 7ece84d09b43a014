package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// stalls is a configuration for fake time, in which a client that stalls is found before
// a test loses patience.
var stalls = serving.Config{StallTimeout: 4 * time.Second}

const postHalf = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this"

// speakHTTP2 has the rig's client use HTTP/2, with a small window for streams.
func (r *rig) speakHTTP2() {
	transport := r.client.Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
}

// TestTimeoutDuringTheFlush ends a request while net/http waits for the end of its body, to
// send a complete response. The connection is closed soon after the response, and not only
// after StallTimeout.
func TestTimeoutDuringTheFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFake(t, serving.Config{RequestTimeout: time.Second, StallTimeout: time.Minute}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "whole")
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		}))
		began := time.Now()
		reply, err := io.ReadAll(r.dial(postHalf))
		if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 200 ") || !strings.HasSuffix(string(reply), "\r\n\r\nwhole") {
			t.Errorf("reply %q, %v", reply, err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the connection was closed after %v, want soon after 1s", took)
		}
	})
}

// TestStalledUpload: the handler's Read ends and the client, which has no
// answer yet, gets 408. The slot is free again.
func TestStalledUpload(t *testing.T) {
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read := make(chan error, 1)
				r := startFake(t, stalls, serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
					if req.Method == http.MethodGet {
						return nil
					}
					_, err := io.ReadAll(req.Body)
					read <- err
					return err
				}), serving.WithMaxOngoingRequests(1))
				var got answer
				if proto == 1 {
					reply, err := io.ReadAll(r.dial(strings.Replace(postHalf, "Host: x", "Host: x\r\nX-Request-ID: id-1", 1)))
					if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 408 ") ||
						!strings.HasSuffix(string(reply), "\r\n\r\nRequest id-1 stalled for 4s.") {
						t.Errorf("reply %q, %v", reply, err)
					}
				} else {
					r.speakHTTP2()
					body, more := io.Pipe()
					defer func() { _ = more.Close() }()
					resp, err := r.client.Post(r.url("/"), "", body)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					got.Status = resp.StatusCode
					checkStatus(t, got, 408)
				}
				if err := servingtest.Receive(t, "the read to end", read); !errors.Is(err, serving.ErrClientStalled) {
					t.Errorf("the handler's read: %v, want ErrClientStalled", err)
				}
				checkStatus(t, r.get("/"), 200)
				want := "proxy_http_request ERROR(client stalled) sc=408 event(*serving.causeError True)"
				if got := digests(r.spans.take(t, 6))[0]; got != want {
					t.Errorf("proxy span %s, want %s", got, want)
				}
				if level := r.access.take(t, "request", 1)[0]["level"]; level != "INFO" {
					t.Errorf("access log has level %v", level)
				}
			})
		})
	}
}

// TestStalledUploadOfStream: with HTTP/2, a response that has begun goes on, and
// its handler sees why the body has ended.
func TestStalledUploadOfStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFake(t, stalls, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
			writeBegin(w)
			for range 2 { // it stays ended
				_, err := io.ReadAll(req.Body)
				_, _ = fmt.Fprint(w, ", ", err)
			}
			return nil
		}))
		r.speakHTTP2()
		body, more := io.Pipe()
		defer func() { _ = more.Close() }()
		resp, err := r.client.Post(r.url("/"), "", body)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "begin, client stalled, client stalled" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestUnreadBodyBeforeReply: net/http wants to see the end of the body before
// the first byte of the response, for which the handler's Write waits.
func TestUnreadBodyBeforeReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFake(t, stalls, serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			writeBegin(w)
			return nil
		}), serving.WithMaxOngoingRequests(1))
		reply, err := io.ReadAll(r.dial(postHalf))
		if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 200 ") || !strings.Contains(string(reply), "begin") {
			t.Errorf("reply %q, %v", reply, err)
		}
		if line := r.access.take(t, "request", 1)[0]; line["level"] != "WARN" || line["error"] != "client stalled" {
			t.Errorf("log line %v", line)
		}
		checkStatus(t, r.get("/"), 200) // the slot is free
	})
}

// TestUnreadBodyAfterHandler: nor does it wait for the body for ever when the
// handler has returned, or where there was none.
func TestUnreadBodyAfterHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFakeApp(t, stalls, serving.NewApp("a", serving.NewDeployment("D", serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
			if req.URL.Path == "/duplex" {
				_ = http.NewResponseController(w).EnableFullDuplex()
			}
			if req.URL.Path == "/fails" {
				_, _ = io.WriteString(w, "begin")
				return errBoom
			}
			return nil
		})), serving.WithRoutePrefix("/app")))
		for path, status := range map[string]string{
			"/app": "200", "/app/duplex": "200", "/app/fails": "200", "/none": "404", "/-/healthz": "200",
		} {
			reply, err := io.ReadAll(r.dial(strings.Replace(postHalf, "/", path, 1)))
			if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 "+status) {
				t.Errorf("%s: reply %q, %v", path, reply, err)
			}
		}
	})
}

// TestStalledDownload: a client takes nothing of a response, with and without a
// body of its own.
func TestStalledDownload(t *testing.T) {
	for _, tt := range []struct{ proto, request string }{
		{"HTTP/1.1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"HTTP/1.1 with a body", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"},
		{"HTTP/2", ""},
	} {
		t.Run(tt.proto, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wrote := make(chan error, 1)
				r := startFake(t, stalls, serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
					chunk := make([]byte, 1<<20)
					for {
						if _, err := w.Write(chunk); err != nil {
							wrote <- err
							return err
						}
					}
				}))
				if tt.request != "" {
					r.dial(tt.request)
				} else {
					r.speakHTTP2()
					resp, err := r.client.Get(r.url("/"))
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = resp.Body.Close() }()
				}
				if err := servingtest.Receive(t, "the write to fail", wrote); err == nil {
					t.Error("no error")
				}
				line := r.access.take(t, "request", 1)[0]
				if line["level"] != "WARN" || line["error"] != "client stalled" || line["status"] != 200.0 {
					t.Errorf("log line %v", line)
				}
			})
		})
	}
}

// TestStalledEnd: the last bytes wait for an HTTP/2 client, after the handler
// has returned: its stream is reset.
func TestStalledEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFake(t, stalls, serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			_, err := w.Write(make([]byte, 64<<10))
			_, _ = io.WriteString(w, "the end")
			return err
		}))
		r.speakHTTP2()
		resp, err := r.client.Get(r.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), servingtest.Patience)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil { // which waits for the stream
			t.Errorf("Shutdown: %v", err)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the client has the whole response")
		}
	})
}

// TestStalledFlood: one HTTP/2 client that takes nothing on any stream goes with
// all of its requests, those that wait for a replica included.
func TestStalledFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 50
		r := startFake(t, serving.Config{StallTimeout: time.Second}, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
			if req.URL.Path == "/" {
				return nil
			}
			_, err := w.Write(make([]byte, 1<<20))
			return err
		}), serving.WithMaxOngoingRequests(1))
		plain := &http.Client{Transport: r.transport()}
		defer plain.CloseIdleConnections()
		r.speakHTTP2()
		ctx, cancel := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		defer flood.Wait()
		defer cancel()
		for range streams {
			flood.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url("/flood"), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := r.client.Do(req); err == nil {
					<-ctx.Done() // takes nothing
					_ = resp.Body.Close()
				}
			})
		}
		r.queued(streams - 1)
		began := time.Now()
		resp, err := plain.Get(r.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("another client waited for %v", took)
		}
	})
}

// TestPausesAreNoStalls: a handler may take its time between writes and a client
// between requests; a body may come slowly; a response may be large.
func TestPausesAreNoStalls(t *testing.T) {
	const limit = 4 * time.Second
	const pause = limit + limit/2
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startFake(t, serving.Config{StallTimeout: limit}, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return err
					}
					<-time.After(pause)
					writeBegin(w)
					<-time.After(pause)
					_, err := w.Write(make([]byte, 3<<20))
					return errors.Join(err, context.Cause(req.Context()))
				}))
				if proto == 2 {
					r.speakHTTP2()
				}
				for range 2 {
					body, more := io.Pipe()
					go func() {
						for range 20 {
							<-time.After(limit / 15)
							_, _ = io.WriteString(more, "x")
						}
						_ = more.Close()
					}()
					resp, err := r.client.Post(r.url("/"), "", body)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || resp.StatusCode != 200 || len(got) != 5+3<<20 {
						t.Errorf("status %d, %d bytes, %v", resp.StatusCode, len(got), err)
					}
					<-time.After(pause)
				}
				if n := r.pipes.dials.Load(); n != 1 {
					t.Errorf("%d connections, want the one", n)
				}
			})
		})
	}
}

// TestLargeWrites checks that a write in several steps arrives completely.
func TestLargeWrites(t *testing.T) {
	want := strings.Repeat("0123456789", 20<<10)
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		n, err := w.Write([]byte(want))
		m, err2 := io.WriteString(w, want)
		k, err3 := w.Write(nil)
		if n != len(want) || m != len(want) || k != 0 {
			t.Errorf("wrote %d, %d and %d", n, m, k)
		}
		return errors.Join(err, err2, err3)
	}))
	if got := r.get("/"); got.Body != want+want {
		t.Errorf("%d bytes, want %d", len(got.Body), 2*len(want))
	}
}
