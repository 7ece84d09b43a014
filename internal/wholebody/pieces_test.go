package wholebody

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// cut cuts content into pieces of n bytes.
func cut(content []byte, n int) [][]byte { return slices.Collect(slices.Chunk(content, n)) }

func TestPiecesAreTheContent(t *testing.T) {
	content := []byte("the content of a body that lies in several pieces")
	for _, size := range []int{1, 7, len(content)} {
		over := 0
		l := Lend(append(cut(content, size), nil, []byte{}), func() { over++ })
		for _, begun := range []int{0, 1, 10, len(content)} { // read before the rest is written, as bufio does
			body, err := l.Body()
			if err != nil {
				t.Fatal(err)
			}
			p := body.(*Pieces)
			first := make([]byte, begun)
			if _, err := io.ReadFull(p, first); err != nil {
				t.Fatal(err)
			}
			if p.Len() != len(content)-begun {
				t.Errorf("%d bytes are left of %d, %d of them read", p.Len(), len(content), begun)
			}
			var rest bytes.Buffer
			if n, err := p.WriteTo(&rest); err != nil || int(n) != len(content)-begun {
				t.Errorf("wrote %d, %v", n, err)
			}
			if got := slices.Concat(first, rest.Bytes()); !bytes.Equal(got, content) {
				t.Errorf("in pieces of %d: %q", size, got)
			}
			if n, err := p.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %d, %v", n, err)
			}
			for range 2 {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := p.Read(make([]byte, 1)); err == nil {
				t.Error("a closed body is read")
			}
		}
		if over != 0 {
			t.Errorf("over %d times before its End", over)
		}
		if l.End(); over != 1 {
			t.Errorf("over %d times after its End", over)
		}
		if _, err := l.Body(); err == nil {
			t.Error("there is a body after all is over")
		}
	}
}

// slow is a writer that has looked at nothing before it may.
type slow struct {
	begun, may chan struct{}
	got        []byte
}

func (s *slow) Write(b []byte) (int, error) {
	close(s.begun)
	<-s.may
	s.got = append(s.got, b...)
	return len(b), nil
}

// TestPiecesStayWhileTheyAreRead: a body is closed, and its lender has ended,
// while it is written, as net/http does when a request is cancelled.
func TestPiecesStayWhileTheyAreRead(t *testing.T) {
	content := []byte("unchanged")
	var over atomic.Bool
	l := Lend([][]byte{content}, func() {
		over.Store(true)
		clear(content)
	})
	body, err := l.Body()
	if err != nil {
		t.Fatal(err)
	}
	w := &slow{begun: make(chan struct{}), may: make(chan struct{})}
	var writing sync.WaitGroup
	writing.Go(func() {
		if _, err := body.(*Pieces).WriteTo(w); err != nil {
			t.Error(err)
		}
	})
	<-w.begun
	_ = body.Close()
	l.End()
	if over.Load() {
		t.Error("over while it is written")
	}
	close(w.may)
	writing.Wait()
	if !over.Load() || string(w.got) != "unchanged" {
		t.Errorf("over %t, written %q", over.Load(), w.got)
	}
}

// TestLenderIsConcurrentSafe: all is over once, after the last.
func TestLenderIsConcurrentSafe(t *testing.T) {
	for range 200 {
		content := bytes.Repeat([]byte("x"), 1000)
		var over atomic.Int32
		l := Lend(cut(content, 100), func() {
			over.Add(1)
			clear(content)
		})
		var all sync.WaitGroup
		for range 4 {
			body, err := l.Body()
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				var got bytes.Buffer
				if _, err := io.Copy(&got, struct{ io.Reader }{body}); err == nil && got.Len() != len(content) {
					t.Errorf("read %d bytes", got.Len())
				}
				if bytes.ContainsFunc(got.Bytes(), func(r rune) bool { return r != 'x' }) {
					t.Error("read what was given back")
				}
			})
			all.Go(func() { _ = body.Close() })
		}
		all.Go(l.End)
		all.Wait()
		if n := over.Load(); n != 1 {
			t.Fatalf("over %d times", n)
		}
	}
}

// post sends a body of l and reads no answer's.
func post(t *testing.T, transport *http.Transport, url string, l *Lender) {
	t.Helper()
	body, err := l.Body()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = int64(l.Len())
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// TestPiecesArrive by all that net/http can send a body by.
func TestPiecesArrive(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1.1": (*httptest.Server).Start,
		"TLS":      (*httptest.Server).StartTLS,
		"HTTP/2":   func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan []byte, 1)
			back := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || (r.ProtoMajor == 2) != (name == "HTTP/2") {
					t.Errorf("%s: %v", r.Proto, err)
				}
				got <- body
			}))
			start(back)
			defer back.Close()
			transport := back.Client().Transport.(*http.Transport)
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return Conn{conn}, err
			}
			defer transport.CloseIdleConnections()
			over := make(chan struct{})
			l := Lend(cut(content, 16<<10), func() { close(over) })
			post(t, transport, back.URL, l)
			if !bytes.Equal(<-got, content) {
				t.Error("what arrived is something else")
			}
			l.End()
			<-over
		})
	}
}

// brittle is a connection that takes nothing any more once it is broken.
type brittle struct {
	net.Conn
	broken *atomic.Bool
}

func (c brittle) Write(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// TestPiecesAreSentAgain: net/http tries a request again by itself that was not
// written, with another body.
func TestPiecesAreSentAgain(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	back, got := taker(t)
	defer back.Close()
	dialled, broken := 0, &atomic.Bool{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled++
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		broken = &atomic.Bool{} // that of the last connection
		return Conn{brittle{conn, broken}}, err
	}}
	defer transport.CloseIdleConnections()
	bodies := 0
	for round := range 2 {
		over := make(chan struct{})
		l := Lend(cut(content, 16<<10), func() { close(over) })
		body := func() (io.ReadCloser, error) {
			bodies++
			return l.Body()
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, back.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength, req.GetBody = int64(l.Len()), body
		if req.Body, err = body(); err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if !bytes.Equal(<-got, content) {
			t.Errorf("round %d: what arrived is something else", round)
		}
		l.End()
		<-over
		broken.Store(true)
	}
	if dialled != 2 || bodies < 2 {
		t.Errorf("%d connections and %d bodies", dialled, bodies)
	}
}

// stubborn is a connection of which one Write reads what it was given when it may,
// whoever has closed it meanwhile.
type stubborn struct {
	net.Conn
	begun, may chan struct{}
	got        chan []byte
}

func (c stubborn) Write(b []byte) (int, error) {
	if len(b) < 1<<20 {
		return c.Conn.Write(b)
	}
	close(c.begun)
	<-c.may
	c.got <- bytes.Clone(b)
	return 0, net.ErrClosed
}

// TestPiecesStayAfterTheAnswer: net/http writes on when the answer is there, and
// the connection is closed.
func TestPiecesStayAfterTheAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn := stubborn{begun: make(chan struct{}), may: make(chan struct{}), got: make(chan []byte, 1)}
	var server sync.WaitGroup
	server.Go(func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		<-conn.begun
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	})
	defer server.Wait()
	defer func() { _ = l.Close() }()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		conn.Conn = c
		return Conn{conn}, err
	}}
	defer transport.CloseIdleConnections()
	content := bytes.Repeat([]byte("x"), 2<<20)
	over := make(chan struct{})
	lender := Lend([][]byte{content[:8<<10], content[8<<10:]}, func() {
		clear(content)
		close(over)
	})
	post(t, transport, "http://"+l.Addr().String(), lender)
	lender.End()
	select {
	case <-over:
		t.Error("over while it is written")
	default:
	}
	close(conn.may)
	if got := <-conn.got; bytes.ContainsFunc(got, func(r rune) bool { return r != 'x' }) {
		t.Error("written what was given back")
	}
	<-over
}
