package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/supervise"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// Session is one plugin that was started and configured as a Host does it. It is for
// tools that send single requests, without retries, and show each answer. Except for
// Export, the methods must not be called concurrently.
type Session struct {
	x        *supervise.Plugin
	plan     supervise.Plan
	about    supervise.Description
	peer     supervise.Peer
	instance string // the first half of the id of each request
	timeout  time.Duration
	batches  atomic.Int64
}

// OpenSession starts the plugin of this name in cfg's list, or attaches to it, and
// configures it. If name is empty, the list must have one plugin. OpenSession blocks
// until the plugin is ready, at most Config.StartTimeout, or until ctx ends. The caller
// must call Stop unless there is an error.
func OpenSession(ctx context.Context, cfg Config, name string, opts ...Option) (*Session, error) {
	h, err := New(cfg, opts...)
	if err != nil {
		return nil, err
	}
	list := h.plugins
	if name != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(x *supervise.Plugin) bool { return x.Entry.Name != name })
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("%d plugins in the list, want one", len(list))
	}
	s := &Session{x: list[0], instance: h.pipeline.Instance, timeout: h.cfg.ExportTimeout}
	if s.plan, err = s.x.Plan(); err != nil {
		return nil, err
	}
	s.plan.EitherKind = true
	s.peer, s.about, err = s.x.ConnectUnsupervised(ctx, &s.plan, true)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// configured reports whether the session configures, flushes and shuts down the plugin.
// It is false for a plain OTLP receiver, and for an attached plugin, which other hosts
// may use too.
func (s *Session) configured() bool { return s.about.About != nil && !s.plan.Attached }

// Inspection returns the plugin's name, path, description and limits. It does not set
// the fields about variables, digests and the configuration.
func (s *Session) Inspection() Inspection {
	i := Inspection{Name: s.x.Entry.Name, Attached: s.plan.Attached, Path: s.plan.Path}
	setDescription(&i, s.about, s.plan.Redactor)
	return i
}

// PID returns the id of the plugin's process, or 0 for an attached plugin.
func (s *Session) PID() int { return s.peer.PID() }

// Answer is a plugin's answer to one request. Texts are clipped, and credentials in
// them are redacted.
type Answer struct {
	// Err is the plugin's error, or the reason why there is no answer. Nil means that
	// the plugin accepted the request. Code is the gRPC code of Err. Final is true if a
	// Host would not send the request again.
	Err   error
	Code  string
	Final bool
	// Rejected counts the spans of an accepted request that the back end rejected.
	// Remark is the back end's text.
	Rejected int
	Remark   string
	// Filtered counts the spans that processors dropped on purpose, by processor.
	Filtered map[string]uint64
	// Unread names a part of the answer that cannot be read, or is empty.
	Unread string
	// Result is the accepted request as a processor plugin returned it. It is nil for an
	// exporter. Credentials in it are not redacted.
	Result []byte
}

// Export sends one encoded ExportTraceServiceRequest. For a processor plugin it calls
// the method Process. It blocks until the plugin has answered, Config.ExportTimeout is
// over or ctx ends. Safe for concurrent use.
func (s *Session) Export(ctx context.Context, request []byte) Answer {
	// The call does not get the deadline of ctx. Otherwise the plugin, which ends its
	// export shortly before the deadline of the call, would answer with an error before
	// ctx ends.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	batch := s.batches.Add(1)
	call = metadata.AppendToOutgoingContext(call,
		wire.MetaBatchID, fmt.Sprintf("%s-%d", s.instance, batch),
		wire.MetaAttempt, "1")
	var (
		response wire.Incoming
		trailer  metadata.MD
		pieces   = mem.BufferSlice{mem.SliceBuffer(request)}
		method   = wire.ExportMethod
	)
	if s.processes() {
		pieces = mem.BufferSlice{mem.SliceBuffer(wire.ProcessHead(wire.RequestBatch, len(request))), mem.SliceBuffer(request)}
		method = wire.ProcessMethod
	}
	out := &wire.Outgoing{Buffers: func() mem.BufferSlice { return pieces }}
	if err := wire.FromStatus(s.peer.Conn().Invoke(call, method, out, &response, grpc.Trailer(&trailer), grpc.MaxCallRecvMsgSize(wire.MaxMessageBytes))); err != nil {
		return Answer{Err: err, Code: err.Code, Final: err.Final}
	}
	if s.processes() {
		return s.readProcessed(request, response.Data, trailer)
	}
	ans := supervise.ReadAnswer(s.plan.Redactor, response.Data, trailer)
	return Answer{Rejected: int(ans.Rejected), Remark: ans.Remark, Filtered: ans.Filtered, Unread: ans.Unread}
}

func (s *Session) processes() bool {
	return s.about.About.GetKind() == pluginv1.Kind_KIND_PROCESSOR
}

// readProcessed reads the OK answer of a processor plugin to a request.
func (s *Session) readProcessed(request, response []byte, trailer metadata.MD) Answer {
	result, _, changed, err := pipeline.ReadResult(request, response, pipeline.MaxResultBytes, func(int) []byte { return nil })
	if err != nil {
		return Answer{Err: fmt.Errorf("the result cannot be used: %w", err), Code: pipeline.CodeUnread, Final: true}
	}
	if !changed {
		result = request
	}
	ans := Answer{Result: result}
	ans.Filtered, ans.Unread = wire.ReadFiltered(s.plan.Redactor.Texts(trailer.Get(wire.MetaFiltered)))
	return ans
}

// Ended reports whether the process of the plugin has ended by itself, and returns its
// exit status as text. If ans is the error of a broken connection, the process may end
// soon. Ended then waits for a moment, unless the plugin still answers a health check.
func (s *Session) Ended(ctx context.Context, ans Answer) (exit string, ended bool) {
	grace := time.Duration(0)
	if ans.Code == wire.CodeRetry && !s.serves(ctx) {
		grace = supervise.EndGrace
	}
	select {
	case <-s.peer.Done():
	case <-time.After(grace):
	case <-ctx.Done():
	}
	select {
	case <-s.peer.Done():
		return s.peer.Exit(), true
	default:
		return "", false
	}
}

// serves reports whether the plugin answers a health check. Any error except
// UNAVAILABLE, which gRPC returns without a connection, counts as an answer.
func (s *Session) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, supervise.HealthTimeout)
	defer cancel()
	_, err := healthpb.NewHealthClient(s.peer.Conn()).Check(ctx, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	return err == nil || wire.FromStatus(err).Code != wire.CodeRetry
}

// Finish flushes the plugin and shuts it down. The error contains the number of spans
// that the plugin could not deliver.
func (s *Session) Finish(ctx context.Context) error {
	if !s.configured() {
		return nil
	}
	var errs []error
	lifecycle := pluginv1.NewLifecycleClient(s.peer.Conn())
	flushed, err := lifecycle.Flush(ctx, &pluginv1.FlushRequest{Timeout: supervise.TimeLeft(ctx)})
	if err != nil {
		errs = append(errs, fmt.Errorf("flush: %w", wire.FromStatus(err)))
	}
	ended, err := lifecycle.Shutdown(ctx, &pluginv1.ShutdownRequest{Timeout: supervise.TimeLeft(ctx)})
	if err != nil {
		errs = append(errs, fmt.Errorf("shutdown: %w", wire.FromStatus(err)))
	}
	if left := max(flushed.GetSpansLeft(), ended.GetSpansLeft()); left > 0 {
		errs = append(errs, fmt.Errorf("the plugin reports that it could not deliver %d accepted spans", left))
	}
	return errors.Join(errs...)
}

// Stop ends the plugin's process, or the connection to an attached plugin. It kills a
// process that does not end by itself within a few seconds.
func (s *Session) Stop() error {
	return s.x.HangUp(s.peer, supervise.EndGrace)
}
