package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// sender sends batches on one connection to a ready plugin. It exists for as long as
// the process or the connection.
type sender struct {
	x    *Plugin
	peer Peer // killed if the plugin does not even answer a health check
	conn grpc.ClientConnInterface
	lane *pipeline.Lane
	// plain is true if the plugin serves OTLP without Lifecycle.
	plain  bool
	limits pipeline.Limits
	// redactor redacts credentials in the plugin's texts.
	redactor launch.Redactor
	trial    *trial // nil: not on probation
	probe    probe
	calls    openCalls
	killed   atomic.Bool      // by this host: its end follows
	verdict  pipeline.Verdict // on the batches without an answer, once run has returned
}

func newSender(x *Plugin, p Peer) *sender {
	s := &sender{x: x, peer: p, conn: p.Conn(), probe: newProbe()}
	s.lane = pipeline.NewLane(x.Queue, s.ending)
	return s
}

// run sends items until ctx ends or the plugin ends, and returns after the last call.
// The end of ctx cancels calls in flight. After the end of the plugin, its last answers
// are still read. Then the lane judges the items without an answer.
func (s *sender) run(ctx context.Context) {
	s.x.Queue.Resume(false)
	defer s.judge()
	ctx, cancel := context.WithCancel(ctx)
	taking, stop := context.WithCancel(ctx)
	var calls, watch sync.WaitGroup
	watch.Go(func() { // ends with the peer, or with ctx
		select {
		case <-s.peer.Done():
			stop()
			s.calls.wait(ctx, lastAnswers)
			cancel()
		case <-ctx.Done():
		}
	})
	for range s.limits.Calls {
		calls.Go(func() {
			for it := s.lane.Take(taking); it != nil; it = s.lane.Take(taking) {
				s.settle(it, s.send(ctx, it))
			}
		})
	}
	calls.Wait()
	cancel()
	watch.Wait()
	stop()
}

// lastAnswers bounds the time to read the answers of a process that has ended. They
// have already arrived, because the connection ends after the answers.
const lastAnswers = 250 * time.Millisecond

// settle records an answer in the health probe, the trial, the state and the ledger.
func (s *sender) settle(it *pipeline.Item, ans pipeline.Answer) {
	s.lane.Count(ans)
	if ans.Said {
		s.heard()
	}
	if s.trial != nil {
		ans = s.trial.judge(s.lane, it, ans)
	}
	if ans.Err != nil && (ans.Said || !ans.Lost) {
		s.x.status.degrade(ans.Err.Error())
	}
	if s.lane.Settle(it, ans) {
		s.x.status.delivered()
	}
}

// judge calls the lane's Judge for the items without an answer.
func (s *sender) judge() {
	crashed := s.lost() && s.x.ctx.Err() == nil
	s.verdict = s.lane.Judge(pipeline.End{
		Crashed:    crashed,
		Blamed:     crashed && mayBeToBlame(s.peer.Report()),
		Leaving:    s.peer.Leaving(),
		Attached:   s.x.Entry.Attached,
		Quarantine: s.quarantine,
	})
	if s.verdict.Blameless {
		s.x.status.forgive() // the crash before
	}
}

// send makes one call. It blocks until the plugin has answered or ctx has ended. If the
// deadline passes or the connection breaks, it also waits until the plugin's health is
// known.
func (s *sender) send(ctx context.Context, it *pipeline.Item) pipeline.Answer {
	timeout := s.x.sup.cfg.ExportTimeout
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	call = metadata.AppendToOutgoingContext(call,
		wire.MetaBatchID, it.ID(s.x.sup.pipeline.Instance),
		wire.MetaAttempt, strconv.Itoa(it.Attempt+1))
	reached := false
	request := &wire.Outgoing{Buffers: func() mem.BufferSlice {
		reached = true
		return s.lane.Buffers(it)
	}}
	var (
		response wire.Incoming
		trailer  metadata.MD
	)
	ended, begun := s.calls.begin(), time.Now()
	err := wire.FromStatus(s.conn.Invoke(call, wire.ExportMethod, request, &response,
		grpc.Trailer(&trailer), grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	ended()
	took := time.Since(begun)
	if reached {
		it.Attempt++ // a call without a connection is no attempt
	}
	if err == nil || tooLong(err, trailer) {
		ans := ReadAnswer(s.redactor, response.Data, trailer)
		ans.Took, ans.Reached, ans.Said = took, true, true
		if err != nil {
			ans.Unread = fmt.Sprintf("it is longer than the %d bytes that are read: %v", maxAnswerBytes, err)
		}
		return ans
	}
	broken := err.Code == wire.CodeRetry // also gRPC's code for a broken connection
	if broken {
		s.lane.Forget(it)
	}
	ans := pipeline.Answer{Err: err, Took: took, Reached: reached, Said: spoken(trailer)}
	if !ans.Said && errors.Is(call.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		err.Err = fmt.Errorf("the plugin gave no answer within %v (%s)", timeout, EnvExportTimeout)
	}
	if !ans.Said && (call.Err() != nil || broken) {
		s.sound(ctx)
	}
	ans.Lost = ctx.Err() != nil || s.lost()
	return ans
}

// maxAnswerBytes bounds the size of an answer to a batch: gRPC's default for clients.
const maxAnswerBytes = 4 << 20

// tooLong reports whether the plugin answered OK with a message of more than
// maxAnswerBytes. In this case the gRPC client returns RESOURCE_EXHAUSTED without a
// trailer, and only the text identifies the cause. A RESOURCE_EXHAUSTED error from the
// plugin has a trailer.
func tooLong(err *wire.Error, trailer metadata.MD) bool {
	return err.Code == "RESOURCE_EXHAUSTED" && !spoken(trailer) && strings.Contains(err.Error(), "larger than max")
}

// spoken reports whether the plugin itself sent an error. An error from a server has a
// trailer with at least the content type. An error from the client has none. If a
// server sent a header before its error, the error counts as no answer and costs a
// health check.
func spoken(trailer metadata.MD) bool { return len(trailer) > 0 }

// sound makes a health check after a call without an answer. It returns when it is
// known whether the plugin is alive.
func (s *sender) sound(ctx context.Context) {
	s.ask(ctx, mostMisses)
	if !s.ending() {
		s.unburden(ctx)
	}
	if s.killed.Load() { // whether a batch was in flight is known at its end only
		select {
		case <-s.peer.Done():
		case <-ctx.Done():
		}
	}
}

// kill ends the process or the connection at once.
func (s *sender) kill(why string) {
	s.killed.Store(true)
	s.peer.Kill(why)
}

// ending reports whether the plugin has ended or is being killed. If so, no more
// batches may be sent, although run may not have returned yet.
func (s *sender) ending() bool { return s.killed.Load() || s.lost() }

// lost reports whether the plugin has ended.
func (s *sender) lost() bool {
	select {
	case <-s.peer.Done():
		return true
	default:
		return false
	}
}

// ReadAnswer reads an OK answer. It ignores a part that cannot be read, because the
// plugin did answer OK.
func ReadAnswer(r launch.Redactor, response []byte, trailer metadata.MD) pipeline.Answer {
	var ans pipeline.Answer
	if len(response) > 0 {
		var msg coltracepb.ExportTraceServiceResponse
		if err := proto.Unmarshal(response, &msg); err != nil {
			ans.Unread = err.Error()
		}
		ans.Rejected = uint64(max(0, msg.GetPartialSuccess().GetRejectedSpans()))
		if text := msg.GetPartialSuccess().GetErrorMessage(); text != "" {
			ans.Remark = wire.Clip(r.Text(text))
		}
	}
	var unread string
	ans.Filtered, unread = wire.ReadFiltered(r.Texts(trailer.Get(wire.MetaFiltered)))
	ans.Unread = cmp.Or(unread, ans.Unread)
	return ans
}

// unburden closes a connection if gRPC holds more than the exporter's share of the
// memory for calls that have ended. Those bytes count until the connection is closed,
// and no other bound applies to them. If the plugin reads its connection, gRPC soon
// frees the bytes.
func (s *sender) unburden(ctx context.Context) {
	for range int(HealthTimeout / unburdenPoll) {
		if held, share := s.lane.Leased(); held <= share {
			return
		}
		select {
		case <-time.After(unburdenPoll):
		case <-ctx.Done():
			return
		}
	}
	held, share := s.lane.Leased()
	s.x.log.Error("plugin does not read its requests: its connection holds too much memory and is closed",
		"bytes", held, "share", share)
	s.kill("it did not read its requests")
}

// unburdenPoll is the interval at which unburden checks, because gRPC has no
// notification.
const unburdenPoll = 100 * time.Millisecond

// openCalls are the calls without an answer so far. Safe for concurrent use.
type openCalls struct {
	mu      sync.Mutex
	running map[chan struct{}]bool // each is closed at the call's end
}

// begin records the start of a call, and returns the function that records its end.
func (c *openCalls) begin() (ended func()) {
	call := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[chan struct{}]bool{}
	}
	c.running[call] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, call)
		close(call)
	}
}

// wait blocks until the calls that run now have ended, ctx has ended, or most has
// passed.
func (c *openCalls) wait(ctx context.Context, most time.Duration) {
	c.mu.Lock()
	calls := slices.Collect(maps.Keys(c.running))
	c.mu.Unlock()
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

// quarantine writes a batch to a file, and returns attributes for the log line.
func (s *sender) quarantine(now time.Time, id string, it *pipeline.Item) []any {
	x := s.x
	path, err := x.sup.crashFiles.keepBatch(x.Entry.Name, now, id, it.Batch)
	if err != nil {
		x.status.failures.Note(slog.LevelError, notKept, "error", err)
	}
	if path == "" {
		return []any{"kept", "no, see " + EnvCrashDir}
	}
	return []any{"file", path, "replay", "servetrace plugin run " + x.files.runs() + " --format proto --spans " + path}
}
