package serving_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
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
	r := start(t, serving.Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			<-leave
		case "/ends":
			runtime.Goexit()
		}
	}))
	for path, want := range map[string][]int{"answers": {200, 200}, "hangs": {408}, "ends": {500, 200}} {
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
	r := start(t, serving.Config{RequestTimeout: shortTimeout}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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

// TestAnswerInTheHandlersPlace says that nothing follows it, and is in the log
// before the client has it.
func TestAnswerInTheHandlersPlace(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	r := start(t, serving.Config{RequestTimeout: shortTimeout}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	for i, path := range []string{"/", "/again"} {
		resp, err := http.ReadResponse(bufio.NewReader(r.dial("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if !resp.Close {
			t.Errorf("%s: no Connection: close", path)
		}
		if lines := r.access.Lines(t, "request"); len(lines) != i+1 {
			t.Errorf("%s: log lines %v", path, lines)
		}
	}
}

// oddConn is a server's connection whose client does what is hard to have one do
// at a certain time.
type oddConn struct {
	net.Conn
	says   *strings.Reader
	left   chan struct{} // closed: the client sends no more
	resets bool          // writes fail

	mu   sync.Mutex
	past chan struct{} // closed once the read deadline is over
}

// oddClient has the rig's server serve a connection of which the client says
// something and reads nothing.
func (r *rig) oddClient(says string, resets bool) *oddConn {
	far, near := net.Pipe()
	r.t.Cleanup(func() { _ = far.Close() })
	c := &oddConn{
		Conn: near, says: strings.NewReader(says), resets: resets,
		left: make(chan struct{}), past: make(chan struct{}),
	}
	l := &only{conns: make(chan net.Conn, 1)}
	l.conns <- c
	r.server.ServeMore(l) // ends by Shutdown
	return c
}

// Read gives what the client says, and then waits until it has left.
func (c *oddConn) Read(b []byte) (int, error) {
	if n, err := c.says.Read(b); err == nil {
		return n, nil
	}
	c.mu.Lock()
	past := c.past
	c.mu.Unlock()
	select {
	case <-c.left:
		return 0, io.EOF
	case <-past:
		return 0, os.ErrDeadlineExceeded
	}
}

// Write implements [net.Conn].
func (c *oddConn) Write(b []byte) (int, error) {
	if c.resets {
		return 0, errors.New("reset")
	}
	return c.Conn.Write(b)
}

// SetReadDeadline takes what is not now for never.
func (c *oddConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t.IsZero():
		c.past = make(chan struct{})
	default:
		select {
		case <-c.past:
		default:
			close(c.past)
		}
	}
	return nil
}

// SetDeadline implements [net.Conn].
func (c *oddConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// only is a listener of one connection.
type only struct{ conns chan net.Conn }

func (l *only) Accept() (net.Conn, error) {
	if c, is := <-l.conns; is {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *only) Close() error {
	close(l.conns)
	return nil
}

func (l *only) Addr() net.Addr { return nil }

// TestGoneSeenByWrite: a client's departure ends the handler's context also where
// net/http does not read, because there is still a body.
func TestGoneSeenByWrite(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}))
	r.oddClient("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", true)
	if line := r.access.take(t, "request", 1)[0]; line["error"] != serving.ErrClientGone.Error() {
		t.Errorf("log line %v", line)
	}
}
