package serving_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestStreamsAreNotBuffered: the client has each part before the next one is
// made. The handler waits for it, so that a proxy that held a part back would
// never come to the end.
func TestStreamsAreNotBuffered(t *testing.T) {
	for _, tt := range []struct {
		name, contentType, part string
		flush                   bool
	}{
		{"chunks", "text/plain", "chunk", true},
		{"events", "text/event-stream", "data: x\n\n", false},
		{"events with carriage returns", "text/event-stream; charset=utf-8", "data: x\r\n\r\n", false},
	} {
		for _, proto := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, HTTP/%d", tt.name, proto), func(t *testing.T) {
				const parts = 10
				seen := make(chan bool)
				r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
					w.Header().Set("Content-Type", tt.contentType)
					w.WriteHeader(http.StatusOK)
					if tt.flush {
						w.(http.Flusher).Flush()
					}
					for i := range parts {
						select {
						case <-seen:
						case <-r.Context().Done():
							return r.Context().Err()
						}
						if i%2 == 0 {
							_, _ = io.WriteString(w, tt.part)
						} else {
							_, _ = w.Write([]byte(tt.part))
						}
						if tt.flush {
							w.(http.Flusher).Flush()
						}
					}
					return nil
				}))
				if proto == 2 {
					r.speakHTTP2()
				}
				resp, err := r.client.Get(r.url("/")) // the head comes before any part
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				part := make([]byte, len(tt.part))
				for range parts {
					seen <- true
					if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != tt.part {
						t.Fatalf("%q, %v", part, err)
					}
				}
				if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
					t.Errorf("%q, %v", rest, err)
				}
				r.check(proxyOK, routerPlain, replica200)
			})
		}
	}
}

// TestPartOfAnEvent waits for the rest of it: an event that is written in pieces
// is one packet.
func TestPartOfAnEvent(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: ")
		_, _ = io.WriteString(w, "1\n")
		_, _ = io.WriteString(w, "\ndata: 2")
		_, _ = io.WriteString(w, "\n\n")
	}))
	c := bufio.NewReader(r.dial("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
	all, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(all), "\r\n\r\n12\r\ndata: 1\n\ndata: 2\n\n\r\n0\r\n\r\n") {
		t.Errorf("%q, %v", all, err)
	}
}

// TestStreamEndsWithItsClient: the handler of an endless stream learns that its
// client has left, though it never reads.
func TestStreamEndsWithItsClient(t *testing.T) {
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			why := make(chan error, 1)
			r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n\n")
				<-r.Context().Done()
				why <- context.Cause(r.Context())
				return r.Context().Err()
			}))
			if proto == 2 {
				r.speakHTTP2()
			}
			resp, err := r.client.Get(r.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if err := servingtest.Receive(t, "the handler to learn of it", why); !errors.Is(err, serving.ErrClientGone) && !errors.Is(err, context.Canceled) {
				t.Errorf("cause %v", err)
			}
			want := "proxy_http_request ERROR() sc=200 event(context.Canceled True)"
			if got := digests(r.spans.take(t, 3))[0]; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
