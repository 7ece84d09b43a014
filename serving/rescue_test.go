package serving

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// statuses reads responses until the connection ends, and gives their statuses.
func statuses(t *testing.T, c net.Conn) (got []int) {
	t.Helper()
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return got
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
		got = append(got, resp.StatusCode)
	}
}

const pipelined = "GET /%s HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// TestPipelined: a second request that is there already is answered after the
// first, but not on a connection that the first has lost.
func TestPipelined(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	r := start(t, Config{RequestTimeout: shortTimeout}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			<-leave
		case "/ends":
			runtime.Goexit()
		}
	}))
	for path, want := range map[string][]int{"answers": {200, 200}, "hangs": {408}, "ends": {500}} {
		c := r.dial(strings.Replace(pipelined, "%s", path, 1))
		if diff := cmp.Diff(want, statuses(t, c)); diff != "" {
			t.Errorf("%s: statuses (-want +got):\n%s", path, diff)
		}
	}
}

// TestTimeoutBesideABody: the answer arrives whole though nobody reads the body
// that is under way, and the connection is closed.
func TestTimeoutBesideABody(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	r := start(t, Config{RequestTimeout: shortTimeout}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reads" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		<-leave
	}))
	for _, path := range []string{"/", "/reads"} {
		c := r.dial("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nbegin")
		go func() { _, _ = c.Write(make([]byte, 500_000)) }() // the server takes as much as it wants
		if diff := cmp.Diff([]int{408}, statuses(t, c)); diff != "" {
			t.Errorf("%s: statuses (-want +got):\n%s", path, diff)
		}
	}
}

// TestHalfClosedClient: to net/http, and so to us, one that sends no more has
// left. Its handler hears of it.
func TestHalfClosedClient(t *testing.T) {
	entered, why := make(chan struct{}), make(chan error, 1)
	r := start(t, Config{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		why <- causeOf(r.Context())
	}))
	c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	receive(t, "the handler", entered)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the context to end", why); !errors.Is(err, ErrClientGone) {
		t.Errorf("cause %v", err)
	}
	if got := statuses(t, c); got != nil {
		t.Errorf("statuses %v", got)
	}
	if line := r.access.take(t, "request", 1)[0]; line["status"] != 499.0 {
		t.Errorf("log line %v", line)
	}
}

// TestShutdownWithoutItsHandler: Shutdown waits for the handler of a request that
// has ended, but its connection is gone.
func TestShutdownWithoutItsHandler(t *testing.T) {
	leave := make(chan struct{})
	r := start(t, Config{RequestTimeout: shortTimeout}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if diff := cmp.Diff([]int{408}, statuses(t, c)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	await(t, "the connection to be forgotten", func() bool {
		r.server.conns.mu.Lock()
		defer r.server.conns.mu.Unlock()
		return len(r.server.conns.open) == 0
	})
	if _, running := r.server.work.counts(); running != 1 {
		t.Errorf("%d handlers run", running)
	}
	if err := r.server.http.Shutdown(t.Context()); err != nil {
		t.Errorf("net/http: %v", err)
	}
	close(leave)
}
