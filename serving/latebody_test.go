package serving_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/serving"
)

// TestBodyUsedAfterItsRequest: user code may keep the body of a request, as a reverse
// proxy does whose back end answers early. A later Read or Close of it reaches neither
// a stream that has ended nor the next request of the connection.
func TestBodyUsedAfterItsRequest(t *testing.T) {
	use := func(body io.ReadCloser) {
		_, _ = body.Read(make([]byte, 1)) // its errors are those of net/http
		_ = body.Close()
	}
	t.Run("HTTP/1", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			bodies := make(chan io.ReadCloser, 1)
			r := startFake(t, stalls, serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
				if req.Method == http.MethodPost {
					bodies <- req.Body
					return nil
				}
				<-time.After(stalls.StallTimeout / 2) // long enough for the limit to be renewed
				use(<-bodies)
				select {
				case <-req.Context().Done():
					return context.Cause(req.Context())
				case <-time.After(2 * stalls.StallTimeout):
					return nil
				}
			}))
			c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
			in := bufio.NewReader(c)
			for _, next := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""} {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("status %d, want 200", resp.StatusCode)
				}
				if _, err := io.WriteString(c, next); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			bodies := make(chan io.ReadCloser, 1)
			r := startFake(t, stalls, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
				bodies <- req.Body
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return nil
			}))
			r.speakHTTP2()
			upload, more := io.Pipe()
			defer more.Close()
			resp, err := r.client.Post(r.url("/"), "text/plain", upload)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("status %d, want 413", resp.StatusCode)
			}
			synctest.Wait() // net/http has forgotten the request
			use(<-bodies)
		})
	})
}

// TestBodyClosedWhileItIsRead: over HTTP/2, Close ends a Read that is under way.
func TestBodyClosedWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFake(t, serving.Config{StallTimeout: time.Hour}, serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
			read := make(chan error, 1)
			go func() {
				_, err := io.ReadAll(req.Body)
				read <- err
			}()
			synctest.Wait() // it reads
			began := time.Now()
			if err := req.Body.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if err := <-read; err == nil || time.Since(began) != 0 {
				t.Errorf("Read: %v, %v after Close", err, time.Since(began))
			}
			return nil
		}))
		r.speakHTTP2()
		upload, more := io.Pipe()
		defer more.Close()
		resp, err := r.client.Post(r.url("/"), "text/plain", upload)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	})
}
