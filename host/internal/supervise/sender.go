package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// sender sends batches to a ready plugin on one connection. It lives as long as its peer:
// the process of a started plugin, or the connection to an attached plugin. A life (life.go)
// makes the sender when the plugin is connected, sets plain, limits and redactor, and calls run
// on a goroutine of its own.
type sender struct {
	x    *Plugin
	peer Peer // killed if the plugin does not answer health checks
	conn grpc.ClientConnInterface
	lane *pipeline.Lane // gives the batches of the plugin's queue to this connection
	// plain is set if the plugin is a plain OTLP receiver, without a Lifecycle service.
	plain    bool
	limits   pipeline.Limits
	redactor launch.Redactor
	trial    *trial      // nil unless the process is on probation, which a replacement begins
	probe    probe       // state of the health checks
	calls    openCalls   // calls that have no answer yet
	killed   atomic.Bool // this host has killed the peer, which ends soon

	// These are set when run returns.
	verdict   pipeline.Verdict // result of Lane.Judge
	peerEnded time.Time        // time of the peer's end; zero if it has not ended
}

func newSender(x *Plugin, p Peer) *sender {
	s := &sender{x: x, peer: p, conn: p.Conn(), probe: newProbe()}
	s.lane = pipeline.NewLane(x.Queue, s.ending)
	return s
}

// run takes batches from the queue and sends them, until ctx or the peer has ended. It
// returns after the last call. If ctx ends, calls in progress are cancelled. If the
// peer ends, its last answers are still read. Then judge decides about the batches
// without an answer.
func (s *sender) run(ctx context.Context) {
	s.x.Queue.Resume()
	defer s.judge()
	ctx, cancel := context.WithCancel(ctx)
	taking, stop := context.WithCancel(ctx) // ends first, so that no more batches are taken
	var calls, watch sync.WaitGroup
	watch.Go(func() { // this goroutine ends with the peer, or with ctx
		select {
		case <-s.peer.Done():
			s.peerEnded = time.Now()
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

// lastAnswers bounds the time to read the last answers of a process that has ended. It
// is short, because the answers are in the socket already.
const lastAnswers = 250 * time.Millisecond

// send calls Export or Process with one batch. It blocks until the plugin has answered or
// ctx ends. After the deadline, or on a broken connection, it blocks until awaitHealth
// returns.
func (s *sender) send(ctx context.Context, it *pipeline.Item) pipeline.Answer {
	timeout := s.x.sup.cfg.ExportTimeout
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	call = metadata.AppendToOutgoingContext(call,
		wire.MetaBatchID, it.ID(),
		wire.MetaAttempt, strconv.Itoa(it.Attempt+1))
	reached, method := false, wire.ExportMethod
	if s.x.Entry.Processor {
		method = wire.ProcessMethod
	}
	request := &wire.Outgoing{Buffers: func() mem.BufferSlice {
		reached = true // the codec asks for the bytes only if there is a connection
		if s.x.Entry.Processor {
			return processRequest(it, s.lane.Buffers(it))
		}
		return s.lane.Buffers(it)
	}}
	var (
		response wire.Incoming
		trailer  metadata.MD
	)
	ended, begun := s.calls.begin(), time.Now()
	err := wire.FromStatus(s.conn.Invoke(call, method, request, &response,
		grpc.Trailer(&trailer), grpc.MaxCallRecvMsgSize(s.mostAnswerBytes())))
	ended()
	took := time.Since(begun)
	if reached {
		it.Attempt++ // a call without a connection does not count as an attempt
	}
	switch {
	case err == nil:
		ans := s.read(it, response.Data, trailer, nil)
		ans.Took, ans.Reached, ans.Said = took, true, true
		return ans
	case tooLong(err, trailer):
		ans := s.read(it, nil, trailer, err)
		ans.Took, ans.Reached, ans.Said = took, true, true
		return ans
	}
	mayBeBroken := err.Code == wire.CodeRetry // gRPC uses this code for a broken connection, too
	if mayBeBroken {
		s.lane.Forget(it)
	}
	ans := pipeline.Answer{Err: err, Took: took, Reached: reached, Said: sentByPlugin(trailer)}
	if !ans.Said && errors.Is(call.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		err.Err = fmt.Errorf("the plugin gave no answer within %v (%s)", timeout, EnvExportTimeout)
	}
	if !ans.Said && (call.Err() != nil || mayBeBroken) {
		s.awaitHealth(ctx)
	}
	ans.Lost = ctx.Err() != nil || s.gone()
	return ans
}

// read reads an OK answer to a batch. unreadable is the error of gRPC if the message of the
// answer was too long to be read, else nil.
func (s *sender) read(it *pipeline.Item, response []byte, trailer metadata.MD, unreadable error) pipeline.Answer {
	if s.x.Entry.Processor {
		return s.readProcessed(it, response, trailer, unreadable)
	}
	ans := ReadAnswer(s.redactor, response, trailer)
	if unreadable != nil {
		ans.Unread = fmt.Sprintf("it is longer than the %d bytes that are read: %v", maxAnswerBytes, unreadable)
	}
	return ans
}

// ReadAnswer reads an OK answer. It ignores parts that cannot be read, because the plugin
// has answered OK.
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

// maxAnswerBytes bounds the size of an exporter's answer: gRPC's default for clients.
const maxAnswerBytes = 4 << 20

// tooLong reports whether the plugin answered OK with a message of more than
// mostAnswerBytes. In this case the gRPC client returns RESOURCE_EXHAUSTED without a
// trailer, and only the text identifies the cause. A RESOURCE_EXHAUSTED error from the
// plugin has a trailer.
func tooLong(err *wire.Error, trailer metadata.MD) bool {
	return err.Code == "RESOURCE_EXHAUSTED" && !sentByPlugin(trailer) && strings.Contains(err.Error(), "larger than max")
}

// sentByPlugin reports whether the plugin itself sent an error. An error from a server has a
// trailer with at least the content type. An error from the client has none. If a
// server sent a header before its error, the error counts as no answer and costs a
// health check.
func sentByPlugin(trailer metadata.MD) bool { return len(trailer) > 0 }

// settle records the answer to a batch in the health probe, in the trial if the process
// is on probation, in the plugin's state, and in the accounting.
func (s *sender) settle(it *pipeline.Item, ans pipeline.Answer) {
	s.lane.Count(ans)
	if ans.Said {
		s.heard()
	}
	if s.trial != nil {
		ans = s.trial.record(s.lane, it, ans)
	}
	if ans.Err != nil && (ans.Said || !ans.Lost) {
		s.x.status.degrade(ans.Err.Error())
	}
	if s.lane.Settle(it, ans) {
		s.x.status.delivered()
	}
}

// judge makes the lane decide about the batches that the plugin got and did not answer.
// If the plugin crashed, one of them may be the cause.
func (s *sender) judge() {
	crashed := s.gone() && s.x.ctx.Err() == nil
	s.verdict = s.lane.Judge(pipeline.End{
		Crashed:    crashed,
		Blamed:     crashed && mayBeToBlame(s.peer.Report()),
		Leaving:    s.peer.Leaving(),
		Attached:   s.x.Entry.Attached,
		Quarantine: s.quarantine,
	})
	if s.verdict.Blameless {
		s.x.status.forgive() // the breaker does not count the previous crash either
	}
}

// quarantine writes a batch that has crashed the plugin to a file, and returns the
// attributes of the log line about it.
func (s *sender) quarantine(now time.Time, id string, it *pipeline.Item) []any {
	x := s.x
	path, err := x.sup.crashFiles.keepBatch(x.Entry.Name, now, id, it.Batch)
	if err != nil {
		x.status.failures.Note(slog.LevelError, notKept, "error", err)
	}
	if path == "" {
		return []any{"kept", "no, see " + EnvCrashDir}
	}
	plugin := x.files.lastPath()
	if x.Entry.Function != "" {
		plugin = x.Entry.Where
	}
	return []any{"file", path, "replay", "servetrace plugin run " + plugin + " --format proto --spans " + path}
}

// awaitHealth checks the health of the plugin after a call without an answer. It returns
// when the plugin has answered, has ended, or ctx ends.
func (s *sender) awaitHealth(ctx context.Context) {
	s.checkHealth(ctx, mostMisses)
	if !s.ending() {
		s.killIfOverShare(ctx)
	}
	if s.killed.Load() { // the end comes soon, and judge then decides about the batch
		select {
		case <-s.peer.Done():
		case <-ctx.Done():
		}
	}
}

// killIfOverShare kills the plugin if gRPC keeps more than the exporter's share of the
// memory for calls that have ended. These bytes count until the connection is closed,
// and have no other bound. gRPC releases them soon if the plugin reads from its
// connection, so killIfOverShare first waits a little.
func (s *sender) killIfOverShare(ctx context.Context) {
	for range int(HealthTimeout / sharePoll) {
		if held, share := s.lane.Leased(); held <= share {
			return
		}
		select {
		case <-time.After(sharePoll):
		case <-ctx.Done():
			return
		}
	}
	held, share := s.lane.Leased()
	s.x.log.Error("plugin does not read its requests: its connection holds too much memory and is closed",
		"bytes", held, "share", share)
	s.kill("it did not read its requests")
}

// sharePoll is the interval of killIfOverShare. gRPC does not report when it releases
// bytes.
const sharePoll = 100 * time.Millisecond

// kill ends the process or the connection at once.
func (s *sender) kill(why string) {
	s.killed.Store(true)
	s.peer.Kill(why)
}

// ending reports whether the plugin has ended or is being killed. It gets no more
// batches then.
func (s *sender) ending() bool { return s.killed.Load() || s.gone() }

// gone reports whether the process or the connection has ended.
func (s *sender) gone() bool {
	select {
	case <-s.peer.Done():
		return true
	default:
		return false
	}
}
