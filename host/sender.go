package host

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// limits are what a plugin takes in one call, and how many calls at a time.
type limits struct {
	spans, bytes, calls int
}

// limitsOf reads what Describe said; zero means the default.
func limitsOf(l *pluginv1.Limits) limits {
	lim := limits{
		spans: int(l.GetMaxBatchSpans()),
		bytes: int(l.GetMaxBatchBytes()),
		calls: int(l.GetMaxConcurrency()),
	}
	setDefault(&lim.spans, mostBatchSpans)
	setDefault(&lim.bytes, wire.DefaultMaxBatchBytes)
	setDefault(&lim.calls, wire.DefaultMaxConcurrency)
	lim.calls = min(lim.calls, mostConcurrency)
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
	// lostPlugin: the plugin went away during the call, which says nothing
	// about the batch.
	lostPlugin bool
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
	// peer is killed when the plugin does not even answer a health check.
	peer peer

	checking sync.Mutex // held while a health check runs

	mu      sync.Mutex
	running map[chan struct{}]bool // calls without an answer; each is closed at its end
}

// run sends the exporter's items until ctx ends, and returns when the last call
// has. Calls in flight at that moment are cancelled; their items go back.
func (l *link) run(ctx context.Context) {
	defer l.x.wakeAtEnd(ctx)()
	var calls sync.WaitGroup
	for range l.limits.calls {
		calls.Go(func() {
			for it := l.x.take(ctx, l.limits); it != nil; it = l.x.take(ctx, l.limits) {
				l.x.settle(it, l.send(ctx, it))
			}
		})
	}
	calls.Wait()
}

// send makes one call. It blocks until the plugin has answered, the deadline
// has passed or ctx has ended.
func (l *link) send(ctx context.Context, it *item) answer {
	it.attempt++
	call, cancel := context.WithTimeout(ctx, l.x.host.cfg.ExportTimeout)
	defer cancel()
	call = metadata.AppendToOutgoingContext(call,
		wire.MetaBatchID, it.id(l.x.host.instance),
		wire.MetaAttempt, strconv.Itoa(it.attempt))
	request := &wire.Outgoing{Buffers: func() mem.BufferSlice { return l.leases.buffer(it.b) }}
	var (
		response wire.Incoming
		trailer  metadata.MD
	)
	ended := l.began()
	err := wire.FromStatus(l.conn.Invoke(call, wire.ExportMethod, request, &response, grpc.Trailer(&trailer)))
	ended()
	if err != nil {
		if err.Code == wire.CodeRetry { // also how gRPC says that the connection broke
			l.leases.forget(it.b)
		}
		if (call.Err() != nil || err.Code == wire.CodeRetry) && ctx.Err() == nil && !l.lost() {
			l.checkAlive(ctx)
		}
		return answer{err: err, lostPlugin: ctx.Err() != nil || l.lost()}
	}
	return l.read(response.Data, trailer)
}

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
			ans.remark = wire.Clip(text)
		}
	}
	var unread string
	ans.filtered, unread = wire.ReadFiltered(trailer.Get(wire.MetaFiltered))
	ans.unread = cmp.Or(unread, ans.unread)
	return ans
}

// healthTimeout is how long a plugin may take to say that it is alive.
const healthTimeout = 2 * time.Second

// endGrace is how long a process that takes no calls any more, and has answered
// those it had, may take to end by itself.
const endGrace = 2 * time.Second

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
// their deadlines.
func (l *link) awaitCalls() {
	l.mu.Lock()
	calls := slices.Collect(maps.Keys(l.running))
	l.mu.Unlock()
	for _, call := range calls {
		<-call
	}
}

// checkAlive asks a plugin that let a call run into its deadline, or that may
// have gone, whether it lives. A slow back end, or one that is down, is no
// reason to kill a plugin; silence is, and a process that serves no more. One
// that was sent SIGTERM takes no new call either, nor does one that leaves, but
// they may answer those they have.
func (l *link) checkAlive(ctx context.Context) {
	if !l.checking.TryLock() {
		return
	}
	defer l.checking.Unlock()
	call, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	_, err := healthpb.NewHealthClient(l.conn).Check(call, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	if err == nil || call.Err() == nil && wire.FromStatus(err).Code != wire.CodeRetry {
		return // it answers, if only that it knows no health
	}
	if call.Err() == nil || l.peer.Leaving() {
		l.awaitCalls()
		select {
		case <-ctx.Done():
		case <-time.After(endGrace):
		}
	}
	if ctx.Err() != nil { // the process has ended, or the host stops
		return
	}
	l.x.log.Error(l.x.entry.manner().hung, "export_timeout", l.x.host.cfg.ExportTimeout, "error", wire.FromStatus(err))
	l.peer.Kill()
}
