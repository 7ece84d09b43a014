package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// limits are what a plugin takes in one call, and how many calls at a time.
type limits struct {
	spans, bytes, calls int
}

// limitsOf reads what Describe said; zero means the default.
func limitsOf(l *pluginv1.Limits) limits {
	lim := limits{
		spans: int(min(l.GetMaxBatchSpans(), math.MaxInt32)), // int may be as small
		bytes: int(min(l.GetMaxBatchBytes(), math.MaxInt32)),
		calls: int(min(l.GetMaxConcurrency(), mostConcurrency)),
	}
	setDefault(&lim.spans, mostBatchSpans)
	setDefault(&lim.bytes, wire.DefaultMaxBatchBytes)
	setDefault(&lim.calls, wire.DefaultMaxConcurrency)
	return lim
}

// mostConcurrency bounds what a plugin may ask for.
const mostConcurrency = 64

func (l limits) exceeded(b *batch) bool {
	return b.spans > l.spans || (len(b.data) > l.bytes && b.spans > 1)
}

// answer is what became of one call.
type answer struct {
	err      *wire.Error // nil: delivered
	rejected uint64      // of a delivered batch, by the back end
	filtered map[string]uint64
	remark   string // the back end's words on what it rejected
	unread   string // what of an OK answer makes no sense
	took     time.Duration
	// reached: gRPC had a connection and took the bytes, so the plugin may have
	// them. said: what the answer says the plugin has said, and not gRPC for it.
	reached, said bool
	// lost: the plugin went away during the call, or the host stopped.
	lost bool
}

// link is a ready plugin's connection. It lives as long as the process, or as
// the connection to one that is attached to.
type link struct {
	x      *exporter
	conn   grpc.ClientConnInterface
	limits limits
	leases *leases
	// plain: the plugin serves OTLP and no Lifecycle.
	plain bool
	// redactor takes out of the plugin's remarks what is secret.
	redactor launch.Redactor
	// peer is killed when the plugin does not even answer a health check.
	peer peer

	// checking has room for one: who runs a health check.
	checking chan struct{}
	killed   atomic.Bool // by this host: its end follows

	// The host's mutex guards these. Who changes idle or single wakes those who
	// wait for a turn (exporter.changed).
	idle       bool      // takes no item, though it may be ready
	retired    bool      // its last call has ended
	single     bool      // takes one item at a time
	flying     int       // items in flight on this connection
	suspected  bool      // the one in flight is a suspect
	trial      *trial    // nil: not on probation
	heard      time.Time // when it answered something last
	misses     int       // answers to health checks that it owes
	unanswered []*item   // of those in flight, what the plugin had when it went
	atCrash    []string  // the ids of those that it had when it crashed, set by judge
	blameless  bool      // its crash was the doing of a batch that is in quarantine now

	mu      sync.Mutex
	running map[chan struct{}]bool // calls without an answer; each is closed at its end
}

func newLink(x *exporter, p peer) *link {
	return &link{x: x, peer: p, conn: p.Conn(), leases: newLeases(), checking: make(chan struct{}, 1), heard: time.Now()}
}

// hasTurnLocked tells whether it may be sent beside what is in flight on l now.
func (l *link) hasTurnLocked(it *item) bool {
	if l.idle {
		return false
	}
	return l.flying == 0 || !l.single && !l.suspected && !it.suspect && !l.x.outage.on()
}

// run sends the exporter's items until ctx ends or the peer has gone, and
// returns when the last call has. Calls in flight at ctx's end are cancelled;
// when the peer goes, what it has answered before is still read. Then judge
// decides what becomes of those without an answer.
func (l *link) run(ctx context.Context) {
	l.x.unpark()
	defer l.x.judge(l)
	ctx, cancel := context.WithCancel(ctx)
	taking, stop := context.WithCancel(ctx)
	defer l.x.wakeAtEnd(taking)()
	var calls, watch sync.WaitGroup
	watch.Go(func() { // ends with the peer, or with ctx
		select {
		case <-l.peer.Done():
			stop()
			l.awaitCalls(ctx, lastAnswers)
			cancel()
		case <-ctx.Done():
		}
	})
	for range l.limits.calls {
		calls.Go(func() {
			for it := l.x.take(taking, l); it != nil; it = l.x.take(taking, l) {
				l.x.settle(l, it, l.send(ctx, it))
			}
		})
	}
	calls.Wait()
	cancel()
	watch.Wait()
	stop()
}

// lastAnswers is how long the answers of a process that has ended may take to
// be read. They are there already: the end of its connection comes behind them.
const lastAnswers = 250 * time.Millisecond

// send makes one call. It blocks until the plugin has answered, or the deadline
// has passed or the connection is broken and it is known whether the plugin
// lives, or ctx has ended.
func (l *link) send(ctx context.Context, it *item) answer {
	call, cancel := context.WithTimeout(ctx, l.x.host.cfg.ExportTimeout)
	defer cancel()
	call = metadata.AppendToOutgoingContext(call,
		wire.MetaBatchID, it.id(l.x.host.instance),
		wire.MetaAttempt, strconv.Itoa(it.attempt+1))
	reached := false
	request := &wire.Outgoing{Buffers: func() mem.BufferSlice {
		reached = true
		return l.leases.buffer(it.b)
	}}
	var (
		response wire.Incoming
		trailer  metadata.MD
	)
	ended, begun := l.began(), time.Now()
	err := wire.FromStatus(l.conn.Invoke(call, wire.ExportMethod, request, &response,
		grpc.Trailer(&trailer), grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	ended()
	took := time.Since(begun)
	if reached {
		it.attempt++ // what found no connection was no attempt
	}
	if err == nil || tooLong(err, trailer) {
		ans := l.read(response.Data, trailer)
		ans.took, ans.reached, ans.said = took, true, true
		if err != nil {
			ans.unread = fmt.Sprintf("it is longer than the %d bytes that are read: %v", maxAnswerBytes, err)
		}
		return ans
	}
	if err.Code == wire.CodeRetry { // also how gRPC says that the connection broke
		l.leases.forget(it.b)
	}
	ans := answer{err: err, took: took, reached: reached, said: spoken(trailer)}
	if !ans.said && errors.Is(call.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		err.Err = fmt.Errorf("the plugin gave no answer within %v (%s)", l.x.host.cfg.ExportTimeout, EnvExportTimeout)
	}
	if !ans.said && (call.Err() != nil || err.Code == wire.CodeRetry) {
		l.sound(ctx)
	}
	ans.lost = ctx.Err() != nil || l.lost()
	return ans
}

// maxAnswerBytes is the most of an answer to a batch that is read: what clients
// of gRPC read unless they are told otherwise.
const maxAnswerBytes = 4 << 20

// tooLong reports whether the plugin answered with a message, and so with OK, of
// more than maxAnswerBytes. The error is then gRPC's own, of this side, and known
// by its text alone; a plugin's own RESOURCE_EXHAUSTED comes with a trailer.
func tooLong(err *wire.Error, trailer metadata.MD) bool {
	return err.Code == "RESOURCE_EXHAUSTED" && !spoken(trailer) && strings.Contains(err.Error(), "larger than max")
}

// spoken tells whether an error is the plugin's own. gRPC's servers send an
// error as a header that is the trailer too, and of that a client sees the type
// of the content; an error that the client itself made has no trailer. Where a
// server did send a header before, its word is taken for silence, which costs a
// health check.
func spoken(trailer metadata.MD) bool { return len(trailer) > 0 }

// sound is for a call that had no answer: it returns when it is known that the
// plugin lives, or that it does not.
func (l *link) sound(ctx context.Context) {
	l.alive(ctx)
	if !l.killed.Load() && !l.lost() {
		l.unburden(ctx)
	}
	if l.killed.Load() { // what was in flight is not known to be so before it ended
		select {
		case <-l.peer.Done():
		case <-ctx.Done():
		}
	}
}

// kill ends the process, or the connection, without a word to it.
func (l *link) kill(why string) {
	l.killed.Store(true)
	l.peer.Kill(why)
}

// ending tells whether the plugin has gone, or goes: nothing is sent to it any
// more, though run may not know it yet.
func (l *link) ending() bool { return l.killed.Load() || l.lost() }

// lost tells whether the plugin has gone, which ends run in a moment.
func (l *link) lost() bool {
	select {
	case <-l.peer.Done():
		return true
	default:
		return false
	}
}

// read takes an OK answer apart. What can not be read counts as nothing said:
// the plugin did answer OK.
func (l *link) read(response []byte, trailer metadata.MD) answer {
	var ans answer
	if len(response) > 0 {
		var msg coltracepb.ExportTraceServiceResponse
		if err := proto.Unmarshal(response, &msg); err != nil {
			ans.unread = err.Error()
		}
		ans.rejected = uint64(max(0, msg.GetPartialSuccess().GetRejectedSpans()))
		if text := msg.GetPartialSuccess().GetErrorMessage(); text != "" {
			ans.remark = wire.Clip(l.redactor.Text(text))
		}
	}
	var unread string
	ans.filtered, unread = wire.ReadFiltered(l.redactor.Texts(trailer.Get(wire.MetaFiltered)))
	ans.unread = cmp.Or(unread, ans.unread)
	return ans
}

// began marks the beginning of a call and gives what marks its end.
func (l *link) began() (ended func()) {
	call := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[chan struct{}]bool{}
	}
	l.running[call] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.running, call)
		close(call)
	}
}

// awaitCalls blocks until the calls that run now have ended, as they do by
// their deadlines, or ctx or the time is over.
func (l *link) awaitCalls(ctx context.Context, most time.Duration) {
	l.mu.Lock()
	calls := slices.Collect(maps.Keys(l.running))
	l.mu.Unlock()
	over := time.NewTimer(most)
	defer over.Stop()
	for _, call := range calls {
		select {
		case <-call:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// unburden gives up a connection of which gRPC keeps more than the exporter's
// share of the memory for calls that are over: their bytes count until it is
// closed, and nothing else would bound them. gRPC lets go of them in a moment
// where the plugin reads what it is sent.
func (l *link) unburden(ctx context.Context) {
	share := l.x.host.share()
	for range int(healthTimeout / unburdenPoll) {
		if l.leases.bytes() <= share {
			return
		}
		select {
		case <-time.After(unburdenPoll):
		case <-ctx.Done():
			return
		}
	}
	l.x.log.Error("plugin does not read what it is sent: its connection holds too much of the memory and is given up",
		"bytes", l.leases.bytes(), "share", share)
	l.kill("it did not read what it was sent")
}

// unburdenPoll is how often unburden looks, for gRPC tells nobody.
const unburdenPoll = 100 * time.Millisecond
