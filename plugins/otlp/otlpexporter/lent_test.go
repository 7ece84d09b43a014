package otlpexporter

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/lent"
	"github.com/servetrace/servetrace/pluginsdk"
)

// scribbler is a pool that overwrites what comes back, so that whoever still reads
// it reads something else, and the race detector hears of it.
type scribbler struct{ back atomic.Int32 }

func (*scribbler) Get(n int) *[]byte { buf := make([]byte, n); return &buf }

func (s *scribbler) Put(buf *[]byte) {
	all := (*buf)[:cap(*buf)]
	for i := range all {
		all[i] = 0xee
	}
	s.back.Add(1)
}

// lend gives content as a plugin lends it: export, after which it is not the
// exporter's any more.
func (s *scribbler) lend(ctx context.Context, e pluginsdk.Exporter, content []byte) error {
	var pieces mem.BufferSlice
	for piece := range slices.Chunk(content, 16<<10) {
		pieces = append(pieces, mem.Copy(piece, s))
	}
	defer pieces.Free()
	return e.(lent.Exporter).ExportLent(ctx, lent.Batch{Pieces: pieces})
}

// large is a request that no socket's buffers hold, nor gzip makes smaller.
func large(seed uint64) []byte {
	noise := make([]byte, 16<<20)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(noise)
	return slices.Concat(field(1, noise), field(1, []byte("the end")))
}

// TestLentBatchArrives whole, and its memory is given back.
func TestLentBatchArrives(t *testing.T) {
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			e, arrived := start()
			var pool scribbler
			for _, content := range [][]byte{some(t, 1), some(t, 2000)} {
				if err := pool.lend(t.Context(), e, content); err != nil {
					t.Fatal(err)
				}
				all := arrived()
				if got := all[len(all)-1]; !bytes.Equal(got, content) {
					t.Errorf("%d bytes of %d arrived, and not the same", len(got), len(content))
				}
			}
		})
	}
}

func TestLentNonsenseIsRefused(t *testing.T) {
	e := open(t, env())
	for _, broken := range [][]byte{{0xff}, {0x0a, 0x05, 1}, {0x0a}, append(field(1, []byte("x")), 0x0a, 0xff)} {
		pieces := mem.BufferSlice{mem.SliceBuffer(broken[:1]), mem.SliceBuffer(broken[1:])}
		if err := e.(lent.Exporter).ExportLent(t.Context(), lent.Batch{Pieces: pieces}); err == nil || !pluginsdk.Final(err) {
			t.Errorf("%x: got %v, want a final error", broken, err)
		}
	}
	// Fields that it does not know, and none, are no fault.
	for _, odd := range [][]byte{{0x10, 7}, field(1900, []byte("x"))} {
		pieces := mem.BufferSlice{mem.SliceBuffer(odd[:1]), mem.SliceBuffer(odd[1:])}
		if err := e.(lent.Exporter).ExportLent(t.Context(), lent.Batch{Pieces: pieces}); err != nil {
			t.Errorf("%x: %v", odd, err)
		}
	}
}

// TestContentIsKeptUntilItIsRead: a body outlives the export, and its memory does.
func TestContentIsKeptUntilItIsRead(t *testing.T) {
	for _, compression := range []bool{false, true} {
		var pool scribbler
		var pieces mem.BufferSlice
		for range 3 {
			pieces = append(pieces, mem.Copy(bytes.Repeat([]byte("x"), 16<<10), &pool))
		}
		content, err := (&transport{settings: settings{gzip: compression}}).content(pieces)
		if err != nil {
			t.Fatal(err)
		}
		body, err := content.Body()
		if err != nil {
			t.Fatal(err)
		}
		content.End()
		pieces.Free()
		gzipped(t, large(5)) // of what nobody uses, it would use this one
		var from io.Reader = body
		if compression {
			if from, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := io.ReadAll(from); err != nil || string(got) != strings.Repeat("x", 3*16<<10) {
			t.Errorf("compressed %t: read %d bytes, and something else: %v", compression, len(got), err)
		}
		_ = body.Close()
		if n := pool.back.Load(); n != 3 {
			t.Errorf("compressed %t: %d of 3 pieces were given back", compression, n)
		}
	}
}

// hasty is an HTTP/1.1 back end on a plain connection: it does as the test says
// when it has read the head of a request, and then reads the body as far as it
// comes.
type hasty struct {
	url    string
	bodies chan []byte
}

func receiveHastily(t *testing.T, head func(conn net.Conn)) *hasty {
	t.Helper()
	h := &hasty{bodies: make(chan []byte, 10)}
	h.url = "http://" + raw(t, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		head(conn)
		body, _ := io.ReadAll(req.Body) // breaks off
		h.bodies <- body
	})
	return h
}

// TestLentMemoryIsNotReadAfterwards: what arrives of a body that is still on its
// way when the export has ended is what was lent.
func TestLentMemoryIsNotReadAfterwards(t *testing.T) {
	for _, compression := range []string{compressionNone, compressionGzip} {
		for name, c := range map[string]struct {
			answer string // empty: none
			fails  bool
		}{
			"answered before it was read": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
			"refused before it was read":  {answer: "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", fails: true},
			"cancelled":                   {fails: true},
		} {
			t.Run(compression+"/"+name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan struct{})
				back := receiveHastily(t, func(conn net.Conn) {
					if c.answer == "" {
						cancel()
					} else {
						_, _ = io.WriteString(conn, c.answer)
					}
					<-ended
				})
				e := open(t, env(EnvEndpoint+"="+back.url, EnvCompression+"="+compression))
				content := large(1)
				want := content
				if compression == compressionGzip {
					want = gzipped(t, content)
				}
				var pool scribbler
				err := pool.lend(ctx, e, content)
				if compression == compressionGzip { // what it lay in is used for the next one
					gzipped(t, large(2))
				}
				close(ended)
				if (err != nil) != c.fails {
					t.Errorf("got %v, fails: %t", err, c.fails)
				}
				if got := <-back.bodies; len(got) == len(want) || !bytes.HasPrefix(want, got) {
					t.Errorf("%d bytes of %d arrived, and are something else", len(got), len(want))
				}
			})
		}
	}
}

// gzipped is what content is sent as.
func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	l, err := compressed(mem.BufferSlice{mem.SliceBuffer(content)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.End()
	body, err := l.Body()
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	return all
}

// TestSqueezedMemoryIsNotKept of a batch that is larger than others.
func TestSqueezedMemoryIsNotKept(t *testing.T) {
	gzipped(t, large(6))
	for range 100 { // the pool has what other tests left, too
		if to := squeezed.Get().(*bytes.Buffer); to.Cap() > mostSqueezed {
			t.Fatalf("%d bytes are kept", to.Cap())
		}
	}
}

// TestLentBatchIsRedirected: the redirect comes before the body was read, so that
// two bodies are read at a time.
func TestLentBatchIsRedirected(t *testing.T) {
	var requests atomic.Int32
	got := make(chan []byte, 1)
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" {
			requests.Add(1)
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- body
	}))
	defer back.Close()
	e := open(t, env(EnvEndpoint+"="+back.URL))
	var pool scribbler
	for i := range 3 {
		content := large(uint64(i))
		if err := pool.lend(t.Context(), e, content); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(<-got, content) {
			t.Error("what arrived is something else")
		}
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("%d requests were redirected", n)
	}
}

// TestLentMemoryIsNotReadAfterwardsByHTTP2: the stream is reset, or the call
// cancelled, while the body is read, and closed meanwhile.
func TestLentMemoryIsNotReadAfterwardsByHTTP2(t *testing.T) {
	var what atomic.Value
	what.Store("")
	var cancel atomic.Value
	wrong := atomic.Bool{}
	content := large(3)
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("it came by %s", r.Proto)
		}
		begin := make([]byte, 1<<20)
		if _, err := io.ReadFull(r.Body, begin); err != nil || !bytes.HasPrefix(content, begin) {
			wrong.Store(true)
		}
		switch what.Load() {
		case "cancelled":
			cancel.Load().(context.CancelFunc)()
			rest, _ := io.ReadAll(r.Body)
			if !bytes.HasPrefix(content[len(begin):], rest) {
				wrong.Store(true)
			}
		case "reset":
			panic(http.ErrAbortHandler)
		}
	}))
	back.EnableHTTP2 = true
	authority := newAuthority(t)
	back.TLS = &tls.Config{Certificates: []tls.Certificate{authority.server(nil)}}
	back.StartTLS()
	defer back.Close()
	e := open(t, env(EnvEndpoint+"="+back.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE="+authority.file))
	for _, how := range []string{"answered", "cancelled", "reset"} {
		what.Store(how)
		ctx, stop := context.WithCancel(t.Context())
		cancel.Store(stop)
		var pool scribbler
		if err := pool.lend(ctx, e, content); (err != nil) != (how != "answered") {
			t.Errorf("%s: %v", how, err)
		}
		stop()
	}
	if wrong.Load() {
		t.Error("something else arrived")
	}
}

// TestLentMemoryIsNotReadAfterwardsByGRPC: the same for calls, which end while
// gRPC writes the message.
func TestLentMemoryIsNotReadAfterwardsByGRPC(t *testing.T) {
	for _, name := range []string{"refused before it was read", "cancelled"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer(grpc.InitialWindowSize(64<<20), grpc.InitialConnWindowSize(64<<20), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				if name == "cancelled" {
					cancel()
					<-stream.Context().Done()
				}
				return status.Error(codes.Unavailable, "not now")
			}))
			var served sync.WaitGroup
			served.Go(func() { _ = s.Serve(l) })
			defer served.Wait()
			defer s.Stop()
			e := open(t, env(EnvProtocol+"=grpc", EnvEndpoint+"=http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))))
			var pool scribbler
			if err := pool.lend(ctx, e, large(4)); err == nil || pluginsdk.Final(err) {
				t.Errorf("got %v, want an error that is tried again", err)
			}
		})
	}
}
