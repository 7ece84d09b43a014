package serving

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
)

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
	go func() { _ = r.server.http.Serve(listener{l}) }() // ends by Shutdown
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

// TestGoneWithBytesUnsent: a client that sends no more, and takes nothing either,
// does not hold up the end of its request.
func TestGoneWithBytesUnsent(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	r := start(t, Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begins")
		close(entered)
		<-leave
	}))
	c := r.oddClient("GET / HTTP/1.1\r\nHost: x\r\n\r\n", false)
	receive(t, "the handler", entered)
	close(c.left)
	if line := r.access.take(t, "request", 1)[0]; line["error"] != ErrClientGone.Error() {
		t.Errorf("log line %v", line)
	}
	await(t, "the request to end", func() bool {
		requests, _ := r.server.work.counts()
		return requests == 0
	})
}

// TestGoneSeenByWrite: a client's departure ends its request also where net/http
// does not read, because there is still a body.
func TestGoneSeenByWrite(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	r := start(t, Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-leave
	}))
	r.oddClient("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", true)
	if line := r.access.take(t, "request", 1)[0]; line["error"] != ErrClientGone.Error() {
		t.Errorf("log line %v", line)
	}
}

// TestNothingFollowsRetirement: a request that net/http had read before its
// connection was closed is not handled, for no answer can get to its client, who
// sends it again.
func TestNothingFollowsRetirement(t *testing.T) {
	r := start(t, Config{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			retire(r)
		}
	}))
	c := r.dial(strings.Replace(pipelined, "%s", "first", 1))
	if diff := cmp.Diff([]int{200}, statuses(t, c)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	await(t, "the connection to be forgotten", func() bool {
		r.server.conns.mu.Lock()
		defer r.server.conns.mu.Unlock()
		return len(r.server.conns.open) == 0
	})
	if lines := r.access.lines(t, "request"); len(lines) != 1 {
		t.Errorf("log lines %v", lines)
	}
}

// TestAnswerInTheHandlersPlace says that nothing follows it, and is in the log
// before the client has it.
func TestAnswerInTheHandlersPlace(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	r := start(t, Config{RequestTimeout: shortTimeout}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ends" {
			runtime.Goexit()
		}
		<-leave
	}))
	for i, path := range []string{"/ends", "/hangs"} {
		resp, err := http.ReadResponse(bufio.NewReader(r.dial("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if !resp.Close {
			t.Errorf("%s: no Connection: close", path)
		}
		if lines := r.access.lines(t, "request"); len(lines) != i+1 {
			t.Errorf("%s: log lines %v", path, lines)
		}
	}
}

// lateOnce is a connection whose first write comes after its deadline.
type lateOnce struct {
	net.Conn
	writes int
}

func (c *lateOnce) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		return 0, os.ErrDeadlineExceeded
	}
	return len(b), nil
}

func (c *lateOnce) SetWriteDeadline(time.Time) error { return nil }

// TestWriteAfterOurDeadline: a process that got no processor is not taken for a
// client that does not read; but a handler's own deadline is its affair.
func TestWriteAfterOurDeadline(t *testing.T) {
	for _, ours := range []bool{true, false} {
		c := &connection{timed: timed{Conn: &lateOnce{}}}
		c.hurried.Store(ours)
		if _, err := io.WriteString(c, "answer"); (err == nil) != ours {
			t.Errorf("ours %t: %v", ours, err)
		}
	}
}
