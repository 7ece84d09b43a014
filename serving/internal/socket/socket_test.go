package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errTimedOut = errors.New("the request timed out")

// bench is a Conn and its client, in the fake time of a bubble.
type bench struct {
	t      *testing.T
	conn   *Conn
	client net.Conn
	ctx    context.Context
	end    context.CancelCauseFunc
	over   chan End
}

func newBench(t *testing.T, change func(*Options)) *bench {
	b := &bench{t: t, over: make(chan End, 2)}
	b.ctx, b.end = context.WithCancelCause(t.Context())
	server, client := net.Pipe()
	b.client = client
	o := Options{
		Context:    b.ctx,
		Over:       func(e End) { b.over <- e; b.end(errTimedOut) },
		CloseFrame: func() (int, string) { return 1001, "bye" },
		WebSocket:  true,
		Status:     101,
	}
	if change != nil {
		change(&o)
	}
	b.conn = New(server, o)
	t.Cleanup(func() {
		_ = client.Close()
		b.end(nil)
		b.conn.Finish(0, "")
	})
	return b
}

// wantOver holds what Over has been called with so far: nothing, or one End.
func (b *bench) wantOver(want ...End) {
	b.t.Helper()
	synctest.Wait()
	if len(b.over) != len(want) {
		b.t.Fatalf("Over was called %d times, want %d", len(b.over), len(want))
	}
	if len(want) == 1 {
		if got := <-b.over; got != want[0] {
			b.t.Errorf("the end is %d, want %d", got, want[0])
		}
	}
}

func (b *bench) send(p ...byte) {
	b.t.Helper()
	if _, err := b.client.Write(p); err != nil {
		b.t.Error(err)
	}
}

var (
	text       = []byte{0x81, 2, 'h', 'i'}
	closeBy    = wsframe.AppendClose(nil, 1000, "")
	closeReply = closeBy
)

// TestReadsAhead: the handler reads all that the client has sent, in its order, whether
// it waits for it or not.
func TestReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		got := make(chan string)
		read := func() {
			buf := make([]byte, 100)
			n, _ := b.conn.Read(buf)
			got <- string(buf[:n])
		}
		go read()
		time.Sleep(time.Hour)
		b.send('a')
		if s := <-got; s != "a" {
			t.Errorf("waited for: %q", s)
		}
		b.send('b', 'c')
		b.send('d')
		synctest.Wait()
		go read()
		if s := <-got; s != "bcd" {
			t.Errorf("read ahead: %q", s)
		}
		b.wantOver()
	})
}

// TestReadAheadIsBounded: a client can send no more than the bound, and it is
// all there afterwards.
func TestReadAheadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		sent := make(chan int, 1)
		go func() {
			n, _ := b.client.Write(make([]byte, 10*aheadBytes))
			sent <- n
		}()
		time.Sleep(time.Hour)
		b.conn.in.mu.Lock()
		size := b.conn.in.buf.Len()
		b.conn.in.mu.Unlock()
		if size != aheadBytes {
			t.Errorf("%d bytes", size)
		}
		if n, err := io.CopyN(io.Discard, b.conn, 10*aheadBytes); err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
		if n := <-sent; n != 10*aheadBytes {
			t.Errorf("sent %d bytes", n)
		}
		b.wantOver()
	})
}

// TestCloseFrameEndsTheRequest after a moment, in which the handler may answer it, and not
// before the handler has dealt with the messages before it.
func TestCloseFrameEndsTheRequest(t *testing.T) {
	t.Run("not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, nil)
			b.send(closeBy...)
			time.Sleep(answerTime - time.Millisecond)
			b.wantOver()
			time.Sleep(time.Millisecond)
			b.wantOver(Closed)
		})
	})
	t.Run("read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, nil)
			go func() { _, _ = io.Copy(io.Discard, b.conn) }() // reads on, for nothing
			time.Sleep(answerTime / 2)
			b.send(closeBy...)
			time.Sleep(answerTime - time.Millisecond)
			b.wantOver()
			time.Sleep(time.Millisecond)
			b.wantOver(Closed)
			if !b.conn.ClosedByClient() || b.conn.Code() != 1000 {
				t.Errorf("code %d", b.conn.Code())
			}
		})
	})
	t.Run("after a message that is not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, nil)
			b.send(append(append([]byte(nil), text...), closeBy...)...)
			time.Sleep(time.Hour)
			b.wantOver()
			if _, err := io.ReadFull(b.conn, make([]byte, len(text)+len(closeBy))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour) // it may still be at the message
			b.wantOver()
			go func() { _, _ = b.conn.Read(make([]byte, 1)) }() // no longer
			time.Sleep(answerTime - time.Millisecond)
			b.wantOver()
			time.Sleep(time.Millisecond)
			b.wantOver(Closed)
		})
	})
	t.Run("after a message, and the client leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, nil)
			b.send(append(append([]byte(nil), text...), closeBy...)...)
			time.Sleep(time.Hour)
			_ = b.client.Close()
			time.Sleep(answerTime)
			b.wantOver(Closed)
		})
	})
	t.Run("read with a message, and the client leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, nil)
			go b.send(append(append([]byte(nil), text...), closeBy...)...)
			if _, err := io.ReadFull(b.conn, make([]byte, len(text)+len(closeBy))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			b.wantOver()
			_ = b.client.Close()
			time.Sleep(answerTime)
			b.wantOver(Closed)
		})
	})
	t.Run("read already", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(o *Options) { o.Buffered = closeBy })
			time.Sleep(2 * answerTime)
			b.wantOver(Closed)
		})
	})
	t.Run("read and answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, nil)
			go b.send(closeBy...)
			if _, err := io.ReadFull(b.conn, make([]byte, len(closeBy))); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, b.client) }()
			if _, err := b.conn.Write(closeReply); err != nil {
				t.Fatal(err)
			}
			if err := b.conn.Close(); err != nil {
				t.Fatal(err)
			}
			b.wantOver(Left)
		})
	})
}

// TestCloseAnswersForTheHandler: a client that has sent a close frame gets one.
func TestCloseAnswersForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		go b.send(closeBy...)
		if _, err := io.ReadFull(b.conn, make([]byte, len(closeBy))); err != nil {
			t.Fatal(err)
		}
		told := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(b.client)
			told <- all
		}()
		if err := b.conn.Close(); err != nil {
			t.Error(err)
		}
		if got := <-told; string(got) != string(closeReply) {
			t.Errorf("the client was told %x", got)
		}
		if err := b.conn.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
	})
}

// TestFinishIsBounded by its grace, whatever the client and the handler do. It
// returns at all; it is not in fake time, which does not go on while somebody
// waits for a lock.
func TestFinishIsBounded(t *testing.T) {
	for name, prepare := range map[string]func(b *bench){
		"client neither reads nor answers": func(*bench) {},
		"client reads, does not answer":    func(b *bench) { go func() { _, _ = io.Copy(io.Discard, b.client) }() },
		"handler is stuck in a write":      func(b *bench) { go func() { _, _ = b.conn.Write(text) }() },
		"handler is stuck in a read":       func(b *bench) { go func() { _, _ = b.conn.Read(make([]byte, 1)) }() },
		"handler is in the midst of a frame": func(b *bench) {
			go func() { _, _ = io.Copy(io.Discard, b.client) }()
			_, _ = b.conn.Write(text[:3])
		},
		"client sends without end": func(b *bench) {
			go func() {
				for {
					if _, err := b.client.Write(text); err != nil {
						return
					}
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			prepare(b)
			b.end(errTimedOut)
			b.conn.Finish(1011, "")
			if _, err := b.conn.Read(make([]byte, 1)); err != errTimedOut {
				t.Errorf("Read: %v", err)
			}
			if _, err := b.conn.Write(text); err != errTimedOut {
				t.Errorf("Write: %v", err)
			}
			if err := b.conn.SetDeadline(time.Time{}); err != errTimedOut {
				t.Errorf("SetDeadline: %v", err)
			}
			<-b.conn.done
		})
	}
}

// TestFinishWaitsForTheFrame: a close frame does not break the one that the
// handler is sending, and nothing follows it.
func TestFinishWaitsForTheFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		told := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(b.client)
			told <- all
		}()
		_, _ = b.conn.Write(text[:3])
		finished := make(chan struct{})
		b.end(errTimedOut)
		go func() {
			b.conn.Finish(1001, "bye")
			close(finished)
		}()
		time.Sleep(time.Millisecond)
		if _, err := b.conn.Write(text[3:]); err != nil {
			t.Errorf("the rest of the frame: %v", err)
		}
		if _, err := b.conn.Write(text); err != errTimedOut {
			t.Errorf("another frame: %v", err)
		}
		<-finished
		if got, want := <-told, wsframe.AppendClose(append([]byte(nil), text...), 1001, "bye"); string(got) != string(want) {
			t.Errorf("the client was told %x, want %x", got, want)
		}
		if b.conn.Code() != 1001 {
			t.Errorf("code %d", b.conn.Code())
		}
	})
}

// TestCloseOfAnEndedRequest ends the socket as Finish would: nothing else need do so.
func TestCloseOfAnEndedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		told := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(b.client)
			told <- all
		}()
		b.end(errTimedOut)
		if err := b.conn.Close(); err != nil {
			t.Error(err)
		}
		<-b.conn.done
		if got, want := <-told, wsframe.AppendClose(nil, 1001, "bye"); string(got) != string(want) {
			t.Errorf("the client was told %x, want %x", got, want)
		}
		b.conn.Finish(1011, "") // has nothing left to do
		if got := b.conn.Code(); got != 1001 {
			t.Errorf("code %d", got)
		}
	})
}

// slowConn is a connection whose writes return late.
type slowConn struct{ net.Conn }

func (c slowConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	<-time.After(time.Second)
	return n, err
}

// TestAnswerBeforeTheWriteReturns: our close frame came first, though the client's answer
// is read before the write of ours returns.
func TestAnswerBeforeTheWriteReturns(t *testing.T) {
	for name, end := range map[string]func(c *Conn) error{
		"the handler's": func(c *Conn) error { _, err := c.Write(wsframe.AppendClose(nil, 1008, "")); return err },
		"the proxy's":   func(c *Conn) error { c.Finish(1008, ""); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				b.conn.out.conn = slowConn{b.conn.out.conn}
				go func() {
					_, _ = io.ReadFull(b.client, make([]byte, len(closeBy)))
					b.send(closeBy...)
				}()
				if err := end(b.conn); err != nil {
					t.Error(err)
				}
				if code := b.conn.Code(); code != 1008 || b.conn.ClosedByClient() {
					t.Errorf("code %d, the client's: %v", code, b.conn.ClosedByClient())
				}
			})
		})
	}
}

// TestCloseFrameThatIsNotSent does not count.
func TestCloseFrameThatIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil) // its client does not read
		b.conn.Finish(1011, "")
		if code := b.conn.Code(); code != wsframe.CodeAbnormal {
			t.Errorf("code %d", code)
		}
	})
}

// TestDeadlineOfTheHandler is for its reads alone.
func TestDeadlineOfTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		if err := b.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := b.conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(time.Hour)
		b.send('x')
		synctest.Wait()
		if n, err := b.conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v: the deadline is long past", n, err)
		}
		if err := b.conn.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if n, err := b.conn.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		b.wantOver()
	})
}

// TestClientGone is told once, and the handler reads what there was before.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.send(text...)
		_ = b.client.Close()
		time.Sleep(answerTime)
		b.wantOver(Gone)
		all, err := io.ReadAll(b.conn)
		if err != nil || string(all) != string(text) {
			t.Errorf("%q, %v", all, err)
		}
		if _, err := b.conn.Write(text); err == nil {
			t.Error("a write to nobody")
		}
		b.wantOver()
		if got := b.conn.Code(); got != wsframe.CodeAbnormal {
			t.Errorf("code %d", got)
		}
	})
}

// TestMessagesBeforeTheEnd of the connection are the handler's to read, while it reads on.
func TestMessagesBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		const messages = 5
		for range messages {
			b.send(text...)
		}
		_ = b.client.Close()
		for range messages {
			time.Sleep(answerTime - time.Millisecond)
			b.wantOver()
			if _, err := io.ReadFull(b.conn, make([]byte, len(text))); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.conn.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		b.wantOver(Gone)
	})
}

// TestHead is put together from however many writes, and passes what is none.
func TestHead(t *testing.T) {
	const name, value = "X-Id", "7"
	long := "HTTP/1.1 101 OK\r\nX-Long: " + strings.Repeat("x", maxHeadBytes)
	for _, tt := range []struct {
		in, want string
		status   int
	}{
		{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\nrest", "HTTP/1.1 101 Switching Protocols\r\nX-Id: 7\r\nUpgrade: a\r\n\r\nrest", 101},
		{"HTTP/1.1 200\r\nx-id: 6\r\nA: b\r\n\r\n", "HTTP/1.1 200\r\nX-Id: 7\r\nA: b\r\n\r\n", 200},
		{"HTTP/1.1\r\n\r\n", "HTTP/1.1\r\nX-Id: 7\r\n\r\n", 0},
		{"HTTP/1.1 what\r\n\r\n", "HTTP/1.1 what\r\nX-Id: 7\r\n\r\n", 0},
		{"HTTP/1.1 99 x\r\n\r\n", "HTTP/1.1 99 x\r\nX-Id: 7\r\n\r\n", 0},
		{"\x81\x02hi", "\x81\x02hi", 0},
		{"HTML", "HTML", 0},
		{long, long, 101},
	} {
		for _, step := range []int{1, 7, len(tt.in)} {
			if len(tt.in) > 1000 && step == 1 {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, func(o *Options) { o.Status, o.Header, o.Value = 0, name, value })
				told := make(chan []byte, 1)
				go func() {
					all, _ := io.ReadAll(b.client)
					told <- all
				}()
				for in := tt.in; in != ""; in = in[min(len(in), step):] {
					if n, err := b.conn.Write([]byte(in[:min(len(in), step)])); err != nil || n != min(len(in), step) {
						t.Fatalf("%d, %v", n, err)
					}
				}
				_ = b.conn.Close()
				if got := string(<-told); got != tt.want {
					t.Errorf("%.60q in steps of %d: %.80q", tt.in, step, got)
				}
				if got := b.conn.Status(); got != tt.status {
					t.Errorf("%.60q: status %d, want %d", tt.in, got, tt.status)
				}
			})
		}
	}
}

// TestStall: a client that takes nothing for as long as the limit ends the socket; one
// that takes a step in time does not, however large the write.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []End
		b := newBench(t, func(o *Options) {
			o.Stall = time.Second
			o.Over = func(e End) { ends = append(ends, e) }
		})
		slow := make(chan error, 1)
		go func() {
			_, err := b.conn.Write(make([]byte, 3*stepBytes))
			slow <- err
		}()
		for range 3 {
			time.Sleep(900 * time.Millisecond)
			if _, err := io.ReadFull(b.client, make([]byte, stepBytes)); err != nil {
				t.Error(err)
			}
		}
		if err := <-slow; err != nil || len(ends) > 0 {
			t.Errorf("slow client: %v, ends %v", err, ends)
		}
		if _, err := b.conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("silent client: %v", err)
		}
		if !slices.Equal(ends, []End{Stalled}) {
			t.Errorf("ends %v, want Stalled", ends)
		}
	})
}

// TestCloseWriteNeedsHalves: net.Pipe has none.
func TestCloseWriteNeedsHalves(t *testing.T) {
	b := newBench(t, nil)
	if err := b.conn.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
