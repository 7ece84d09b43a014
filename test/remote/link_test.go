package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
)

// link is a network between callers and one process. It can be slow, take everything and
// deliver nothing, or break.
type link struct {
	listener net.Listener
	delay    time.Duration // of each piece, in each direction
	copying  sync.WaitGroup

	mu    sync.Mutex
	to    string // the process; empty: it is away
	conns []*net.TCPConn
	open  chan struct{} // closed while the link delivers
}

func newLink(t testing.TB, to string, delay time.Duration) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, delay: delay, open: make(chan struct{})}
	close(l.open)
	l.copying.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close() // accept ends
		l.restore()
		l.cut()
		l.copying.Wait()
	})
	return l
}

func (l *link) addr() string { return l.listener.Addr().String() }

func (l *link) target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to
}

// aim has the link lead to a process.
func (l *link) aim(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.target())
		if err != nil { // the process is away
			_ = from.Close()
			continue
		}
		near, far := from.(*net.TCPConn), to.(*net.TCPConn)
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		l.mu.Unlock()
		l.copying.Go(func() { l.copy(near, far) })
		l.copying.Go(func() { l.copy(far, near) })
	}
}

// copy copies from one side to the other, until one of them ends.
func (l *link) copy(from, to *net.TCPConn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	piece := make([]byte, 16<<10)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		nap(context.Background(), l.delay)
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		<-open
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// lose has the link deliver nothing until restore.
func (l *link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

// cut resets all connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.SetLinger(0) // it may be closed
		_ = c.Close()
	}
	l.conns = nil
}

// checkLost checks that calls failed only because an accepted call was lost, and no more
// than most.
func checkLost(t *testing.T, failed map[string]error, most int) {
	t.Helper()
	for id, err := range failed {
		if !errors.Is(err, serving.ErrReplicaLost) {
			t.Errorf("call %s: %v", id, err)
		}
	}
	if len(failed) > most {
		t.Errorf("%d calls failed, want at most %d: %v", len(failed), most, failed)
	}
}

func callModel(h handles) func(context.Context, string) error {
	return func(ctx context.Context, id string) error {
		out, err := h.model.Call(ctx, job{ID: id})
		if err == nil && out != id {
			err = fmt.Errorf("the result is %s", out)
		}
		return err
	}
}

// slots is how many calls a process runs at a time.
const slots = 5

// TestSlowLink: no call fails on a slow link, and a deadline that is too short for it ends a
// call.
func TestSlowLink(t *testing.T) {
	a := callee(t, "127.0.0.1:0")
	slow := newLink(t, a.ready.Calls, 20*time.Millisecond)
	_, h := caller(t, []string{slow.addr()})
	l := startLoad(t, 8, callModel(h))
	l.more(50)
	limited, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := h.model.Call(limited, job{ID: "late"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call with less time than the link needs: %v", err)
	}
	l.more(50)
	_, failed := l.end()
	checkLost(t, failed, 0)
	checkRuns(t, l, a)
}

// TestPartition loses all that is sent to and from one of two processes: its accepted calls
// fail, all others go to the other process, and it takes calls again when the link is back.
// None runs twice, although the offers to it arrive late.
func TestPartition(t *testing.T) {
	a, b := callee(t, "127.0.0.1:0"), callee(t, "127.0.0.1:0")
	to := newLink(t, a.ready.Calls, 0)
	server, h := caller(t, []string{to.addr(), b.ready.Calls})
	running := func(n int) func(serving.DeploymentStatus) bool {
		return func(s serving.DeploymentStatus) bool { return s.NumReplicas == n }
	}
	awaitStatus(t, server, running(2))
	l := startLoad(t, 8, callModel(h))
	l.more(200)
	to.lose()
	l.more(200)
	awaitStatus(t, server, running(1)) // the pings of the connection get no answer
	to.restore()
	awaitStatus(t, server, running(2))
	before, _ := a.all("ran")
	for {
		l.more(50)
		if now, _ := a.all("ran"); len(now) > len(before) {
			break
		}
	}
	_, failed := l.end()
	checkLost(t, failed, slots)
	checkRuns(t, l, a, b)
}

// TestCutConnections resets the connections of a process again and again under load: only
// calls that it had accepted fail, and none runs twice.
func TestCutConnections(t *testing.T) {
	a := callee(t, "127.0.0.1:0")
	to := newLink(t, a.ready.Calls, 0)
	_, h := caller(t, []string{to.addr()})
	l := startLoad(t, 8, callModel(h))
	const cuts = 20
	for range cuts {
		l.more(20)
		to.cut()
	}
	l.more(20)
	_, failed := l.end()
	checkLost(t, failed, cuts*slots)
	checkRuns(t, l, a)
}

// TestStreamBound: calls beyond the streams of a connection wait, and run once each when a
// call has ended. Their streams serve the next calls.
func TestStreamBound(t *testing.T) {
	a := start(t, "SERVE_DEPLOYMENTS=Model", "SERVE_CALL_ADDR=127.0.0.1:0", serving.EnvCallMaxStreams+"=2")
	_, h := caller(t, addrs(a))
	ctx, cancel := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	for i := range 2 {
		id := fmt.Sprint("hold", i)
		holding.Go(func() { _, _ = h.model.Call(ctx, job{ID: id, Wait: true}) }) // ends by cancel
		a.await("ran", id)
	}
	l := startLoad(t, 3, callModel(h))
	limited, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if _, err := h.model.Call(limited, job{ID: "late"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call without a stream: %v", err)
	}
	cancel()
	holding.Wait()
	l.more(100)
	_, failed := l.end()
	checkLost(t, failed, 0)
	checkRuns(t, l, a)
}

// TestProcessesThatNameEachOther: two processes call each other's deployments, and a
// deployment that each expects in the other runs in none, which the status says.
func TestProcessesThatNameEachOther(t *testing.T) {
	toModel, toRanker := newLink(t, "", 0), newLink(t, "", 0)
	serve := func(runs, remote string, at, there *link) *process {
		p := start(t, "SERVE_DEPLOYMENTS=Ingress,"+runs, "SERVE_CALL_ADDR=127.0.0.1:0", "SERVE_REMOTE="+remote+"=static:///"+there.addr())
		at.aim(p.ready.Calls)
		return p
	}
	model, ranker := serve("Model", "Ranker", toModel, toRanker), serve("Ranker", "Model", toRanker, toModel)
	for _, p := range []*process{model, ranker} {
		if got := get(t, p, "rank7"); got != "ranked rank7" {
			t.Errorf("answer %q", got)
		}
	}

	var servers [2]*serving.Server
	var h [2]handles
	links := []*link{toModel, toRanker}
	for i := range servers {
		var err error
		servers[i], h[i], err = newServer(func(name string) string {
			return map[string]string{serving.EnvRemote: "Model=static:///" + links[1-i].addr(), serving.EnvCallAddr: "127.0.0.1:0"}[name]
		}, &printer{to: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = servers[i].Shutdown(context.Background()) }() // no call runs
		links[i].cut()
		links[i].aim(servers[i].CallAddr().String())
	}
	for i, server := range servers {
		awaitStatus(t, server, func(s serving.DeploymentStatus) bool {
			return strings.Contains(s.Error, `does not run deployment "Model"`)
		})
		limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := h[i].model.Call(limited, job{ID: "nowhere"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call of a deployment that no process runs: %v", err)
		}
	}
}
