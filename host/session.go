package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// Session is one plugin, started and configured as by a Host, for tools that send
// one request at a time, repeats none and shows each answer. Requests are bytes of
// OTLP. The methods must not be called concurrently.
type Session struct {
	x        *plugin
	plan     plan
	about    description
	peer     peer
	instance string // the first half of the batches' ids
	batches  int
}

// OpenSession starts the only plugin of cfg's list, or attaches to it, and configures
// it. It blocks until the plugin is ready, at most Config.StartTimeout; the end of ctx
// cuts it short. The caller must call Stop unless there is an error.
func OpenSession(ctx context.Context, cfg Config, opts ...Option) (*Session, error) {
	h, err := New(cfg, opts...)
	if err != nil {
		return nil, err
	}
	if len(h.plugins) != 1 {
		return nil, fmt.Errorf("%d plugins in the list, want one", len(h.plugins))
	}
	s := &Session{x: h.plugins[0], instance: h.pipeline.Instance}
	if s.plan, err = h.cfg.plan(s.x.entry); err != nil {
		return nil, err
	}
	start, cancel := h.cfg.startContext(ctx)
	defer cancel()
	err = s.open(start)
	if errors.Is(err, errStartAgain) {
		err = s.open(start)
	}
	if err != nil {
		return nil, h.cfg.startError(start, err)
	}
	return s, nil
}

// open connects to the plugin and configures it. After an error the process has ended.
func (s *Session) open(ctx context.Context) (err error) {
	cfg := s.x.shared.cfg
	if s.peer, err = s.x.shared.connect(ctx, cfg, s.plan, s.x.log); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if s.about, err = describe(ctx, cfg.list(), s.plan, s.peer.Conn()); err != nil || !s.configured() {
		return err
	}
	if missing := s.plan.missing(s.about.granted); s.about.about.GetEnvAtStart() && len(missing) > 0 {
		s.plan.environ = slices.Concat(s.plan.environ, missing)
		return errStartAgain
	}
	return configure(ctx, cfg.list(), s.x.log, s.peer.Conn(), s.plan, s.about)
}

// configured reports whether the session configures, flushes and shuts down the
// plugin. It does not with a plain OTLP receiver, and not with a plugin that runs for
// others too.
func (s *Session) configured() bool { return s.about.about != nil && !s.plan.attached }

// Inspection returns the plugin's name, its description and its limits. Other fields
// are empty.
func (s *Session) Inspection() Inspection {
	i := Inspection{Name: s.x.entry.Name, Attached: s.plan.attached, Path: s.plan.path}
	setDescription(&i, s.about, s.plan.redactor)
	return i
}

// Answer is a plugin's answer to one request. Texts are clipped and without secrets.
type Answer struct {
	// Err is the plugin's error, or the reason why there is no answer. Nil: the plugin
	// took the request. Code is the gRPC code of Err. Final: a Host does not send the
	// request again.
	Err   error
	Code  string
	Final bool
	// Rejected counts the spans of a request that was taken and that the back end
	// refused; Remark is the back end's text.
	Rejected int
	Remark   string
	// Filtered counts the spans that processors dropped on purpose, by processor.
	Filtered map[string]uint64
	// Unread names the part of the answer that cannot be read. Empty: none.
	Unread string
}

// Export sends one encoded ExportTraceServiceRequest. It blocks until the plugin has
// answered, Config.ExportTimeout is over or ctx ends.
func (s *Session) Export(ctx context.Context, request []byte) Answer {
	// The plugin learns the timeout only, not the end of ctx. It ends an export a
	// little before the call's end: otherwise it could answer batch after batch and ctx
	// would never end.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.x.shared.cfg.ExportTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	s.batches++
	call = metadata.AppendToOutgoingContext(call,
		wire.MetaBatchID, fmt.Sprintf("%s-%d", s.instance, s.batches),
		wire.MetaAttempt, "1")
	var (
		response wire.Incoming
		trailer  metadata.MD
	)
	out := &wire.Outgoing{Buffers: func() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(request)} }}
	if err := wire.FromStatus(s.peer.Conn().Invoke(call, wire.ExportMethod, out, &response, grpc.Trailer(&trailer))); err != nil {
		return Answer{Err: err, Code: err.Code, Final: err.Final}
	}
	ans := readAnswer(s.plan.redactor, response.Data, trailer)
	return Answer{Rejected: int(ans.Rejected), Remark: ans.Remark, Filtered: ans.Filtered, Unread: ans.Unread}
}

// Ended reports whether the plugin has ended by itself, and how. After an answer that
// may come from a broken connection it first gives the process a moment to end, unless
// the plugin still answers.
func (s *Session) Ended(ctx context.Context, ans Answer) (exit string, ended bool) {
	grace := time.Duration(0)
	if ans.Code == wire.CodeRetry && !s.serves(ctx) {
		grace = endGrace
	}
	select {
	case <-s.peer.Done():
		return s.peer.Exit(), true
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

// serves reports whether the plugin answers a health check, even with an error.
func (s *Session) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	_, err := healthpb.NewHealthClient(s.peer.Conn()).Check(ctx, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	return err == nil || wire.FromStatus(err).Code != wire.CodeRetry
}

// Finish flushes the plugin and shuts it down. The error has the number of spans that it could
// not deliver.
func (s *Session) Finish(ctx context.Context) error {
	if !s.configured() {
		return nil
	}
	var errs []error
	lifecycle := pluginv1.NewLifecycleClient(s.peer.Conn())
	flushed, err := lifecycle.Flush(ctx, &pluginv1.FlushRequest{Timeout: timeLeft(ctx)})
	if err != nil {
		errs = append(errs, fmt.Errorf("flush: %w", wire.FromStatus(err)))
	}
	ended, err := lifecycle.Shutdown(ctx, &pluginv1.ShutdownRequest{Timeout: timeLeft(ctx)})
	if err != nil {
		errs = append(errs, fmt.Errorf("shutdown: %w", wire.FromStatus(err)))
	}
	if left := max(flushed.GetSpansLeft(), ended.GetSpansLeft()); left > 0 {
		errs = append(errs, fmt.Errorf("the plugin says that it has taken, and could not deliver, %d spans", left))
	}
	return errors.Join(errs...)
}

// Stop ends the process, or the connection, and frees it. It kills a process that does
// not end by itself within a few seconds.
func (s *Session) Stop() error {
	end, cancel := s.x.ending(endGrace)
	defer cancel()
	return s.peer.Stop(end)
}
