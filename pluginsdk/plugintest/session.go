package plugintest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// session is a connection to a plugin. Its methods make the calls of the contract between
// host and plugin. It is safe for concurrent use.
type session struct {
	settings  *settings
	seen      *observations
	conn      grpc.ClientConnInterface
	lifecycle pluginv1.LifecycleClient
	// processes is true for a processor plugin. Then export calls Process and not Export. It
	// must be set before the first call of export.
	processes bool
	returned  sharedList[[]byte] // the results of Process: encoded batches
	// hangUp and the fields below are set by connect.
	hangUp   func()        // closes the connection and its stream
	stdio    chan struct{} // closed when the stream of GRPCStdio has ended
	stdioErr error         // the reason for the end of that stream; must be read only after stdio is closed
}

// running is a started plugin, with the suite's connection to it.
type running struct {
	plugin  *plugin
	session *session // nil before connect
}

// connect waits for the plugin's handshake and connects to the plugin. It returns the
// handshake's error if there is none in time. The caller must call close.
func (r *running) connect(ctx context.Context, s *settings, seen *observations) error {
	shake, err := r.plugin.handshake(ctx, s.patience)
	if err != nil {
		return err
	}
	r.session, err = connect(s, seen, shake.address)
	return err
}

// close ends the connection and the plugin.
func (r *running) close() {
	if r.session != nil {
		r.session.close()
	}
	r.plugin.stop()
}

// arrived returns the encoded batches that have reached the exporter, or that a processor
// plugin has returned. visible is false for an exporter plugin in a process of its own,
// because the suite cannot see its batches.
func (r *running) arrived() (batches [][]byte, visible bool) {
	switch {
	case r.session.processes:
		return r.session.returned.all(), true
	case r.plugin.inner == nil:
		return nil, false
	}
	return r.plugin.inner.exported.all(), true
}

func newSession(s *settings, seen *observations, conn grpc.ClientConnInterface) *session {
	return &session{settings: s, seen: seen, conn: conn, lifecycle: pluginv1.NewLifecycleClient(conn)}
}

// connect connects to a plugin's socket. As go-plugin's client does, it opens the stream
// of go-plugin's service GRPCStdio and holds it open. The caller must call close.
func connect(settings *settings, seen *observations, socket string) (*session, error) {
	conn, err := launch.Connect(socket, grpc.WithStatsHandler(callObserver{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessageBytes)))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s := newSession(settings, seen, conn)
	ctx, cancel := context.WithCancel(context.Background())
	s.hangUp = func() {
		cancel()
		_ = conn.Close() // nothing can be lost, and a second Close is allowed
	}
	s.stdio = make(chan struct{})
	late := time.AfterFunc(settings.patience, cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/plugin.GRPCStdio/StreamStdio")
	late.Stop()
	if err == nil {
		err = errors.Join(stream.SendMsg(&emptypb.Empty{}), stream.CloseSend())
	}
	go func() { // this goroutine ends with the connection; close waits for it
		defer close(s.stdio)
		for err == nil {
			err = stream.RecvMsg(&wire.Incoming{})
		}
		s.stdioErr = err
	}()
	return s, nil
}

// close closes the connection, and waits for the goroutine that connect has started.
func (s *session) close() {
	s.hangUp()
	<-s.stdio
}

// call makes a gRPC call and waits for the answer, at most for the suite's patience. If
// that time passes, the error wraps errNoAnswer. If the plugin answers with an error, the
// error wraps a *wire.Error.
func call[Request, Response any](ctx context.Context, s *session, method func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.patience)
	defer cancel()
	deadline, _ := ctx.Deadline() // the deadline of the caller's ctx, if that is earlier
	limit := time.Until(deadline)
	response, err := method(ctx, request)
	e := wire.FromStatus(err)
	switch {
	case e == nil:
		return response, nil
	case ctx.Err() != nil && e.Code == "DEADLINE_EXCEEDED":
		return response, noAnswerWithin(limit)
	}
	return response, fmt.Errorf("%s: %w", e.Code, e)
}

var errNoAnswer = errors.New("no answer")

func noAnswerWithin(limit time.Duration) error {
	if limit > time.Second {
		limit = limit.Round(time.Second)
	}
	return fmt.Errorf("%w within %v", errNoAnswer, limit)
}

// codeOf returns the gRPC code in an error that call has returned. It returns "" if the
// plugin did not answer.
func codeOf(err error) string {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// invoke calls the method with the given path, with an empty message. It is for methods
// without generated code.
func (s *session) invoke(ctx context.Context, method string) error {
	_, err := call(ctx, s, func(ctx context.Context, in *emptypb.Empty, _ ...grpc.CallOption) (*wire.Incoming, error) {
		return nil, s.conn.Invoke(ctx, method, in, &wire.Incoming{})
	}, &emptypb.Empty{})
	return err
}

func (s *session) describe(ctx context.Context) (*pluginv1.DescribeResponse, error) {
	response, err := call(ctx, s, s.lifecycle.Describe, &pluginv1.DescribeRequest{HostVersion: "plugintest"})
	if err != nil {
		return nil, fmt.Errorf("call Describe: %w", err)
	}
	return response, nil
}

func (s *session) configure(ctx context.Context, request *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	reply, err := call(ctx, s, s.lifecycle.Configure, request)
	s.seen.diagnostics.add(reply.GetDiagnostics()...)
	return reply, err
}

// configureWell calls Configure. It returns an error if the plugin refuses the request, which
// has the author's options.
func (s *session) configureWell(ctx context.Context, request *pluginv1.ConfigureRequest) error {
	reply, err := s.configure(ctx, request)
	if err != nil {
		return fmt.Errorf("call Configure: %w", err)
	}
	if faults := errorsOf(reply); len(faults) > 0 {
		return fmt.Errorf("the configuration is refused:\n%s\ngive the suite the missing settings by WithEnv (--env) and WithConfig (--config)", strings.Join(faults, "\n"))
	}
	return nil
}

func errorsOf(reply *pluginv1.ConfigureResponse) []string {
	var faults []string
	for _, d := range reply.GetDiagnostics() {
		if isError(d) {
			faults = append(faults, strings.TrimPrefix(d.GetPath()+": "+wire.Clip(d.GetText()), ": "))
		}
	}
	return faults
}

func isError(d *pluginv1.Diagnostic) bool {
	return d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR
}

// flush calls Flush, and returns the number of spans that the plugin could not deliver.
func (s *session) flush(ctx context.Context) (left uint64, err error) {
	reply, err := call(ctx, s, s.lifecycle.Flush, &pluginv1.FlushRequest{Timeout: durationpb.New(s.settings.patience)})
	return reply.GetSpansLeft(), err
}

// shutdown calls Shutdown, and returns the number of spans that the plugin could not
// deliver.
func (s *session) shutdown(ctx context.Context) (left uint64, err error) {
	reply, err := call(ctx, s, s.lifecycle.Shutdown, &pluginv1.ShutdownRequest{Timeout: durationpb.New(s.settings.patience)})
	return reply.GetSpansLeft(), err
}

// noneLeft takes the results of flush or shutdown. It returns their error, or an error if
// spans are left.
func noneLeft(left uint64, err error) error {
	if err == nil && left > 0 {
		err = fmt.Errorf("%d spans left; want 0: every batch was answered OK, which means delivered", left)
	}
	return err
}

func (s *session) health(ctx context.Context) error {
	reply, err := call(ctx, s, healthpb.NewHealthClient(s.conn).Check, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	if err == nil && reply.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		err = fmt.Errorf("%v, want SERVING", reply.GetStatus())
	}
	if err != nil {
		return fmt.Errorf("health check of service %q: %w", wire.HealthService, err)
	}
	return nil
}

// release calls Shutdown of go-plugin's controller, by which go-plugin's client asks a
// plugin to end. If the plugin ends before it answers, release returns nil.
func (s *session) release(ctx context.Context) error {
	if err := s.invoke(ctx, "/plugin.GRPCController/Shutdown"); codeOf(err) != wire.CodeRetry {
		return err
	}
	return nil
}

// export sends a batch and returns the plugin's answer. It returns an error if there is
// no answer, because the connection broke, ctx ended, or the suite's patience was over.
func (s *session) export(ctx context.Context, b batch) (Answer, error) {
	data, err := b.encode()
	if err != nil {
		return Answer{}, err
	}
	md := metadata.Pairs(b.more...)
	if b.id != "" {
		md.Set(wire.MetaBatchID, b.id)
		md.Set(wire.MetaAttempt, strconv.Itoa(b.attempt))
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.settings.patience, noAnswerWithin(s.settings.patience))
	defer cancel()
	var (
		events   = callEvents{sent: b.sent}
		pieces   = mem.BufferSlice{mem.SliceBuffer(data)}
		method   = wire.ExportMethod
		response wire.Incoming
		trailer  metadata.MD
	)
	if s.processes {
		pieces = mem.BufferSlice{mem.SliceBuffer(wire.ProcessHead(wire.RequestBatch, len(data))), mem.SliceBuffer(data)}
		method = wire.ProcessMethod
	}
	request := &wire.Outgoing{Buffers: func() mem.BufferSlice { return pieces }}
	err = s.conn.Invoke(context.WithValue(metadata.NewOutgoingContext(limited, md), eventsKey{}, &events),
		method, request, &response, grpc.Trailer(&trailer))
	if err != nil && !events.answered.Load() {
		if limited.Err() != nil {
			return Answer{}, fmt.Errorf("%s of %d spans: %w", path.Base(method), len(b.ids), context.Cause(limited))
		}
		e := wire.FromStatus(err)
		return Answer{}, fmt.Errorf("%s of %d spans: %s: %w", path.Base(method), len(b.ids), e.Code, e)
	}
	return s.answer(b, data, response.Data, trailer, err), nil
}

// answer converts the plugin's answer to a batch, and records it for the rules that judge
// all answers. data is the encoded batch, response the encoded response, and err the
// error of the call.
func (s *session) answer(b batch, data, response []byte, trailer metadata.MD, err error) Answer {
	var answer Answer
	var faults answerFaults
	switch {
	case err != nil:
		answer = answerOfError(err)
	case s.processes:
		var result []byte
		answer, faults, result = parseProcess(b, data, response, trailer)
		s.returned.add(result)
	default:
		answer, faults = parseExport(response, trailer)
	}
	s.seen.exports.add(exportObservation{len(b.ids), answer, faults})
	return answer
}

// mustExport sends a batch, and returns an error unless the plugin answers OK.
func (s *session) mustExport(ctx context.Context, b batch) (Answer, error) {
	answer, err := s.export(ctx, b)
	if err == nil && !answer.Delivered() {
		err = fmt.Errorf("a batch of %d spans (%d bytes): answered %v, want OK", len(b.ids), proto.Size(b.request), answer)
	}
	return answer, err
}

// callEvents records what gRPC reports about one call of Export.
type callEvents struct {
	answered atomic.Bool // the plugin has sent a status, so an error is not about the connection
	sent     func()      // called when the request has been written; may be nil
}

type eventsKey struct{}

type callObserver struct{}

var _ stats.Handler = callObserver{}

// TagRPC returns ctx unchanged.
func (callObserver) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC is called by gRPC for each event of a call. It records that the request was
// written, and that the trailers with the status have arrived.
func (callObserver) HandleRPC(ctx context.Context, event stats.RPCStats) {
	events, ok := ctx.Value(eventsKey{}).(*callEvents)
	if !ok {
		return
	}
	switch event.(type) {
	case *stats.OutPayload:
		if events.sent != nil {
			events.sent()
		}
	case *stats.InTrailer:
		events.answered.Store(true)
	}
}

// TagConn returns ctx unchanged.
func (callObserver) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (callObserver) HandleConn(context.Context, stats.ConnStats) {}
