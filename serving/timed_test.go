package serving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// longAgo is how net/http ends a read of its own.
var longAgo = time.Unix(1, 0)

// counting is a connection that counts how often its deadlines are set.
type counting struct {
	net.Conn
	reads, writes int
}

func (c *counting) SetReadDeadline(at time.Time) error {
	c.reads++
	return c.Conn.SetReadDeadline(at)
}

func (c *counting) SetWriteDeadline(at time.Time) error {
	c.writes++
	return c.Conn.SetWriteDeadline(at)
}

// pipe gives a timed connection over one that counts, and its other end.
func pipe(t *testing.T) (c *timed, below *counting, client net.Conn) {
	t.Helper()
	server, client := net.Pipe()
	below = &counting{Conn: server}
	t.Cleanup(func() {
		_ = server.Close()
		_ = client.Close()
	})
	return &timed{Conn: below}, below, client
}

// TestTimedIsFree: the deadlines that net/http sets for a request are none of the
// connection's, but for one in a while.
func TestTimedIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, below, client := pipe(t)
		for range 50 { // requests, 1 s each
			go func() { _, _ = client.Write([]byte("GET /")) }() // ends by the read below
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))   // idle
			if _, err := c.Read(make([]byte, 5)); err != nil {
				t.Fatalf("Read: %v", err)
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Second)) // headers
			_ = c.SetReadDeadline(time.Time{})                 // they are there
			_ = c.SetReadDeadline(time.Time{})                 // net/http waits for the client's end
			time.Sleep(time.Second)                            // the handler
			_ = c.SetReadDeadline(longAgo)                     // it waits no more
			if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("Read after its deadline: %d, %v", n, err)
			}
			_ = c.SetReadDeadline(time.Time{})
			_ = c.SetWriteDeadline(time.Time{})
		}
		if below.reads != 1 || below.writes != 0 {
			t.Errorf("deadlines of the connection: %d for reads, %d for writes; want 1 and 0", below.reads, below.writes)
		}
	})
}

// step is what one line of a script does to a connection, and what comes of it
// shows in the log.
type step struct {
	after time.Duration // since the last step
	do    string        // read, write, none, past, now or in
	in    time.Duration // for in
}

func drawScript(r *rand.Rand) []step {
	script := make([]step, 3+r.IntN(20))
	for i := range script {
		script[i] = step{
			after: time.Duration(r.IntN(4)) * time.Second,
			do:    []string{"read", "read", "write", "none", "none", "past", "now", "in", "in"}[r.IntN(9)],
			in:    time.Duration(1+r.IntN(8))*time.Second + 300*time.Microsecond, // at no other step's time
		}
	}
	return script
}

// play runs a script and gives what came of it, with times. A read that is still
// under way as the next comes is that one too.
func play(t *testing.T, script []step, wrap func(net.Conn) net.Conn) (log []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		c := wrap(server)
		began := time.Now()
		var mu sync.Mutex
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, time.Since(began).String()+" "+fmt.Sprintf(format, args...))
		}
		set := func(err error) {
			if err != nil {
				note("set %v", err)
			}
		}
		reading := false
		var all sync.WaitGroup
		for i, s := range script {
			time.Sleep(s.after)
			synctest.Wait()
			switch s.do {
			case "read":
				mu.Lock()
				busy := reading
				reading = true
				mu.Unlock()
				if busy {
					continue
				}
				all.Go(func() {
					var b [8]byte
					n, err := c.Read(b[:])
					note("step %d read %q, late %t, closed %t", i, b[:n], errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.ErrClosedPipe))
					mu.Lock()
					defer mu.Unlock()
					reading = false
				})
			case "write": // reaches a read that is under way
				_ = client.SetWriteDeadline(time.Now().Add(time.Millisecond / 2))
				if _, err := client.Write([]byte{byte('a' + i)}); err != nil {
					note("step %d lost", i) // nobody read
				}
			case "none":
				set(c.SetReadDeadline(time.Time{}))
			case "past":
				set(c.SetReadDeadline(longAgo))
			case "now":
				set(c.SetReadDeadline(time.Now()))
			case "in":
				set(c.SetDeadline(time.Now().Add(s.in)))
			}
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		_ = c.Close()
		all.Wait()
		set(c.SetReadDeadline(longAgo))
		_, err := c.Read(make([]byte, 1))
		note("read %v", err)
		_ = client.Close()
	})
	return log
}

// TestTimedAsAlone: whatever is done in whatever order, a timed connection does what
// it would do without.
func TestTimedAsAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		script := drawScript(r)
		want := play(t, script, func(c net.Conn) net.Conn { return c })
		got := play(t, script, func(c net.Conn) net.Conn { return &timed{Conn: c} })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("script %d %+v (-alone +timed):\n%s", i, script, diff)
		}
	}
}

// TestTimedReads: a read ends when the deadline says that it does, whenever that
// came.
func TestTimedReads(t *testing.T) {
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for name, c := range map[string]struct {
		before func(c *timed) // the read
		during func(c *timed) // a second after it has begun
		want   time.Duration  // how long it took; 0: it goes on
	}{
		"before":            {before: func(c *timed) { _ = c.SetReadDeadline(in(3 * time.Second)) }, want: 3 * time.Second},
		"while it waits":    {during: func(c *timed) { _ = c.SetReadDeadline(in(3 * time.Second)) }, want: 4 * time.Second},
		"ended before":      {before: func(c *timed) { _ = c.SetReadDeadline(longAgo) }, want: -1},
		"ended while":       {during: func(c *timed) { _ = c.SetReadDeadline(longAgo) }, want: time.Second},
		"ended right now":   {during: func(c *timed) { _ = c.SetReadDeadline(time.Now()) }, want: time.Second},
		"taken back":        {before: func(c *timed) { _ = c.SetReadDeadline(in(3 * time.Second)) }, during: func(c *timed) { _ = c.SetReadDeadline(time.Time{}) }},
		"later":             {before: func(c *timed) { _ = c.SetReadDeadline(in(3 * time.Second)) }, during: func(c *timed) { _ = c.SetReadDeadline(in(9 * time.Second)) }, want: 10 * time.Second},
		"sooner":            {before: func(c *timed) { _ = c.SetReadDeadline(in(9 * time.Second)) }, during: func(c *timed) { _ = c.SetReadDeadline(in(3 * time.Second)) }, want: 4 * time.Second},
		"long before":       {during: func(c *timed) { _ = c.SetReadDeadline(time.Time{}.Add(1)) }, want: time.Second},
		"by both deadlines": {during: func(c *timed) { _ = c.SetDeadline(in(3 * time.Second)) }, want: 4 * time.Second},
		"ended, and on again before anybody saw": {during: func(c *timed) {
			_ = c.SetReadDeadline(longAgo)
			_ = c.SetReadDeadline(in(3 * time.Second))
		}, want: 4 * time.Second},
		"after one that has passed": {before: func(c *timed) {
			_ = c.SetReadDeadline(in(time.Second))
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetReadDeadline(in(3 * time.Second))
		}, want: 3 * time.Second},
		"none after one that has passed": {before: func(c *timed) {
			_ = c.SetReadDeadline(in(time.Second))
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetReadDeadline(time.Time{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, _, client := pipe(t)
				if c.before != nil {
					c.before(conn)
				}
				began := time.Now()
				type end struct {
					n    int
					err  error
					took time.Duration
				}
				ended := make(chan end, 1)
				go func() { // ends by its deadline, or by the write below
					n, err := conn.Read(make([]byte, 1))
					ended <- end{n, err, time.Since(began)}
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				if c.during != nil {
					c.during(conn)
				}
				if c.want == 0 {
					time.Sleep(time.Hour)
					if _, err := client.Write([]byte("x")); err != nil {
						t.Fatalf("Write: %v", err)
					}
					if e := <-ended; e.n != 1 || e.err != nil {
						t.Errorf("Read: %d, %v", e.n, e.err)
					}
					return
				}
				e := <-ended
				if e.n != 0 || !errors.Is(e.err, os.ErrDeadlineExceeded) || e.took != max(0, c.want) {
					t.Errorf("Read: %d, %v, after %v; want it to end late after %v", e.n, e.err, e.took, max(0, c.want))
				}
				var timeout net.Error // net/http asks for it
				if !errors.As(e.err, &timeout) || !timeout.Timeout() {
					t.Errorf("%v is no timeout", e.err)
				}
			})
		})
	}
}

// TestTimedByTimeOfDay: a deadline without a monotonic reading goes by the time of
// day as it is now, though that has been set since the process began.
func TestTimedByTimeOfDay(t *testing.T) {
	began := timedBegan
	defer func() { timedBegan = began }()
	*(*uint64)(unsafe.Pointer(&timedBegan)) += 7200 << 30 // its seconds: the clock was two hours ahead then
	if by := timedBegan.Round(0).Sub(began.Round(0)); by != 2*time.Hour || timedBegan.Sub(began) != 0 {
		t.Fatalf("package time has changed: the clock was %v ahead", by)
	}
	c, _, client := pipe(t) // in no bubble: the clock of those has no monotonic reading
	_ = c.SetReadDeadline(time.Now().Add(time.Hour).Round(0))
	go func() { _, _ = client.Write([]byte("x")) }() // ends by the read, or as client is closed
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("Read an hour before its deadline: %d, %v", n, err)
	}
}

// TestTimedConcurrentSafe: on a socket, deadlines come and go while somebody reads
// and somebody writes. Not a byte is lost, no read ends late without a reason, and
// all of them end by the last deadline.
func TestTimedConcurrentSafe(t *testing.T) {
	server, client := sockets(t)
	c := &timed{Conn: server}
	const size = 1 << 14
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		all.Go(func() { // net/http, the watch, the rescue
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_ = c.SetReadDeadline([]time.Time{{}, time.Now().Add(time.Hour), longAgo, time.Now().Add(time.Microsecond), time.Now()}[i%5])
			}
		})
	}
	all.Go(func() {
		for i := range size {
			if _, err := client.Write([]byte{byte(i)}); err != nil {
				t.Errorf("Write: %v", err)
				return
			}
		}
	})
	for i := 0; i < size; {
		var b [7]byte
		n, err := c.Read(b[:])
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read: %v", err)
		}
		for _, got := range b[:n] {
			if got != byte(i) {
				t.Fatalf("byte %d is %d", i, got)
			}
			i++
		}
	}
	close(stop)
	all.Wait()
	var reads sync.WaitGroup
	_ = c.SetReadDeadline(time.Time{})
	for range 3 {
		reads.Go(func() {
			if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read: %d, %v", n, err)
			}
		})
	}
	_ = c.SetReadDeadline(longAgo)
	reads.Wait()
}

// TestTimedServer: the deadlines of net/http, and those of a handler, hold on a
// connection that has carried requests before, and end none that is in order.
func TestTimedServer(t *testing.T) {
	const headers, idle = 10 * time.Second, time.Minute
	var why chan error // of the bubble: how a handler's last request ended
	handler := HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		switch r.URL.Path {
		case "/long":
			select {
			case <-time.After(10 * idle):
			case <-r.Context().Done():
				return context.Cause(r.Context())
			}
		case "/left":
			<-r.Context().Done()
			why <- context.Cause(r.Context())
		case "/late":
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(idle)); err != nil {
				return err
			}
			_, err := io.ReadAll(r.Body)
			if errors.Is(err, ErrClientGone) { // as the rescue says, which the late read has called
				err = os.ErrDeadlineExceeded
			}
			why <- err
		default:
			_, err := io.Copy(w, r.Body)
			return err
		}
		return nil
	})
	const get, post = "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n%s\r\n"
	for name, c := range map[string]struct {
		last string        // what the client says in the end
		ends time.Duration // when the connection does
		why  error
	}{
		"idle":          {"", idle, nil},
		"begun":         {"GET / HT", headers, nil},
		"headers":       {"GET / HTTP/1.1\r\nHost: x\r\n", headers, nil},
		"late body":     {fmt.Sprintf(post, "/late", ""), idle, os.ErrDeadlineExceeded},
		"gone at last":  {fmt.Sprintf(get, "/left"), 20 * idle, context.Canceled},
		"gone early on": {fmt.Sprintf(get, "/left"), time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why = make(chan error, 1)
				client := serveBubble(t, Config{ReadHeaderTimeout: headers, IdleTimeout: idle, StallTimeout: time.Hour}, handler)
				in := bufio.NewReader(client)
				ask := func(text, want string) {
					t.Helper()
					if _, err := io.WriteString(client, text); err != nil {
						t.Fatalf("%q: %v", text, err)
					}
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatalf("%q: %v", text, err)
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if got := fmt.Sprintf("%d %s", resp.StatusCode, body); got != want || err != nil {
						t.Errorf("%q: %q, %v, want %q", text, got, err, want)
					}
				}
				for range 2 {
					ask(fmt.Sprintf(get, "/"), "200 ")
					ask(fmt.Sprintf(get, "/long"), "200 ")
					ask(fmt.Sprintf(post, "/", "")+"hello", "200 hello")
					ask(fmt.Sprintf(post, "/", "Expect: 100-continue\r\n"), "100 ")
					time.Sleep(10 * idle) // a body may take its time
					ask("hello", "200 hello")
					time.Sleep(idle - time.Second)
				}
				ask(fmt.Sprintf(get, "/")+fmt.Sprintf(get, "/long"), "200 ")
				ask("", "200 ")
				began := time.Now()
				_, _ = io.WriteString(client, c.last)
				if c.why == context.Canceled {
					time.AfterFunc(c.ends, func() { _ = client.Close() })
				}
				_, _ = io.ReadAll(in)
				if took := time.Since(began); took != c.ends {
					t.Errorf("the connection ended after %v, want %v", took, c.ends)
				}
				if c.why == nil {
					return
				}
				if err := <-why; !errors.Is(err, c.why) {
					t.Errorf("the handler saw %v, want %v", err, c.why)
				}
			})
		})
	}
}

// serveBubble serves one connection within a bubble, and gives its client's end.
func serveBubble(t *testing.T, cfg Config, h http.Handler) net.Conn {
	t.Helper()
	s, err := New(cfg, []*App{NewApp("a", NewDeployment("D", h))}, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range s.order {
		set.start()
	}
	s.work.start()
	s.watch.start()
	client, server := net.Pipe()
	l := &only{conns: make(chan net.Conn, 1)}
	l.conns <- server
	go func() { _ = s.http.Serve(listener{l}) }() // ends by Shutdown
	t.Cleanup(func() {
		_ = client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return client
}

// sockets gives the two ends of a connection of TCP.
func sockets(t *testing.T) (server, client net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	defer func() { _ = l.Close() }()
	client, err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatalf("Accept: %v", err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server, client
}
