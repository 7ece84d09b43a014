package plugintest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// plugin is a started plugin, in a process of its own or in this one.
type plugin interface {
	// firstLine waits for the first line of standard output. The error is ctx's,
	// io.EOF where the plugin ended without a line, or why it did.
	firstLine(ctx context.Context) (string, error)
	socketDir() string
	// terminate asks the plugin to end, as SIGTERM does.
	terminate()
	signal(sig syscall.Signal)
	closeStdin()
	// done is closed when the plugin has ended; exit then says whether it did
	// so cleanly.
	done() <-chan struct{}
	exit() error
	pid() int
	printed() *output
	// stop ends it at once, waits, and removes what was made for it.
	stop()
}

// session is a started plugin and the suite's connection to it.
type session struct {
	*settings
	watch  *watch // nil: nobody
	plugin plugin
	shake  handshake
	// The rest is nil before connect.
	conn      grpc.ClientConnInterface
	lifecycle pluginv1.LifecycleClient
	stdioSent chan struct{} // closed when GRPCStdio's stream was asked for, or never will be
	stdio     chan struct{} // closed when it has ended, by stdioErr
	stdioErr  error
	hangUp    func() // closes the connection
	ready     bool   // configured
	// foreign: the connection is not of connect, and does not tell whether a
	// status came from the plugin.
	foreign bool
}

// startEnviron returns the variables that a plugin with env_at_start finds in
// its start environment. It is nil for other plugins, and for a rule that does not
// wait for the answer of Describe.
func (t *trial) startEnviron() []string {
	if !slices.Contains(t.rule.after, "describe.answered") {
		return nil
	}
	var environ []string
	if t.about.response.GetEnvAtStart() {
		for name, value := range t.granted(t.about.response.GetEnvPatterns()) {
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}

// spawn starts a plugin and waits for nothing.
func (t *trial) spawn(h how) (*session, error) {
	s := &session{settings: t.settings, watch: &t.watch}
	target := t.target
	target.env = slices.Concat(target.env, t.startEnviron())
	var err error
	if s.plugin, err = target.start(h); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions = append(t.sessions, s)
	return s, nil
}

// start starts the target.
func (t Target) start(h how) (plugin, error) {
	if t.spec != nil {
		return startInner(*t.spec, h)
	}
	return startChild(t, h)
}

// launch starts a plugin, waits for its handshake and connects to it.
func (t *trial) launch(ctx context.Context, h how) (*session, error) {
	s, err := t.spawn(h)
	if err != nil {
		return nil, err
	}
	if err := s.awaitHandshake(ctx); err != nil {
		return nil, err
	}
	return s, s.connect()
}

// ready launches a plugin and configures it as a host does, or takes one that
// another rule has left.
func (t *trial) ready(ctx context.Context, h how) (*session, error) {
	if t.rule.shares {
		if s := t.pool.take(); s != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.sessions = append(t.sessions, s)
			return s, nil
		}
	}
	s, err := t.launch(ctx, h)
	if err != nil {
		return nil, err
	}
	if !t.about.plain {
		if _, err := s.describe(ctx); err != nil {
			return nil, err
		}
		if err := s.configureWell(ctx, t.about.response.GetEnvPatterns()); err != nil {
			return nil, err
		}
	}
	s.ready = true
	return s, nil
}

// awaitHandshake reads the first line.
func (s *session) awaitHandshake(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	line, err := s.plugin.firstLine(wait)
	switch {
	case err != nil && wait.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("no line on standard output within %v; want the handshake 1|1|unix|PATH|grpc", s.patience)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("no handshake on standard output: %s", ending(s.plugin))
	case err != nil:
		return fmt.Errorf("start: %w", err)
	}
	var faults []string
	if s.shake, faults = parseHandshake(line); len(faults) > 0 {
		return fmt.Errorf("first line of standard output is %q: %s; want 1|1|unix|PATH|grpc and nothing before it: print to standard error", clip(line), strings.Join(faults, ", "))
	}
	return nil
}

// ending says how a plugin that is done has ended.
func ending(p plugin) string {
	if err := p.exit(); err != nil {
		return err.Error()
	}
	return "it ended with status 0"
}

// connect opens the connection as go-plugin's client does, stream of output
// included.
func (s *session) connect() error {
	address := s.shake.address
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}),
		grpc.WithTransportCredentials(wire.PeerCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(wire.MaxMessageBytes)),
		grpc.WithInitialWindowSize(wire.WindowBytes),
		grpc.WithInitialConnWindowSize(wire.WindowBytes),
		grpc.WithWriteBufferSize(wire.WriteBufferBytes),
		grpc.WithStatsHandler(hearing{}),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s.use(conn)
	s.stdio, s.stdioSent = make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	s.hangUp = func() {
		cancel()
		_ = conn.Close() // nothing is lost with it; a second Close is harmless
	}
	go func() { // ends with the connection; close waits for it
		defer close(s.stdio)
		s.stdioErr = holdStdio(ctx, conn, s.stdioSent)
	}()
	return nil
}

// use makes calls over conn.
func (s *session) use(conn grpc.ClientConnInterface) {
	s.conn, s.lifecycle = conn, pluginv1.NewLifecycleClient(conn)
}

// holdStdio opens GRPCStdio's stream, closes sent when it has asked for it, and
// reads it to its end.
func holdStdio(ctx context.Context, conn *grpc.ClientConn, sent chan<- struct{}) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/plugin.GRPCStdio/StreamStdio")
	if err == nil {
		err = errors.Join(stream.SendMsg(&emptypb.Empty{}), stream.CloseSend())
	}
	close(sent)
	if err != nil {
		return err
	}
	for {
		if err := stream.RecvMsg(&wire.Incoming{}); err != nil {
			return err
		}
	}
}

// close ends the plugin and the connection.
func (s *session) close() {
	if s.conn != nil {
		s.hangUp()
		<-s.stdio
	}
	s.plugin.stop()
}

// within bounds a call by the suite's patience.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.patience)
}

// describe asks what the plugin is.
func (s *session) describe(ctx context.Context) (*pluginv1.DescribeResponse, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	response, err := s.lifecycle.Describe(ctx, &pluginv1.DescribeRequest{HostVersion: "plugintest"})
	if err != nil {
		return nil, fmt.Errorf("call Describe: %w", s.callError(ctx, err))
	}
	return response, nil
}

// configureWell configures the plugin as the options say.
func (s *session) configureWell(ctx context.Context, patterns []string) error {
	reply, err := s.configure(ctx, s.request(patterns))
	if err != nil {
		return fmt.Errorf("call Configure: %w", err)
	}
	if faults := errorsOf(reply); len(faults) > 0 {
		return fmt.Errorf("the configuration is refused:\n%s\ngive the suite what the plugin needs with WithEnv (--env) and WithConfig (--config)", strings.Join(faults, "\n"))
	}
	return nil
}

func (s *session) configure(ctx context.Context, request *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	reply, err := s.lifecycle.Configure(ctx, request)
	if s.watch != nil {
		s.watch.seeDiagnostics(reply.GetDiagnostics())
	}
	return reply, s.callError(ctx, err)
}

// request is what a host configures a plugin with that declares patterns.
func (s *settings) request(patterns []string) *pluginv1.ConfigureRequest {
	where := s.context
	return &pluginv1.ConfigureRequest{Env: s.granted(patterns), Config: s.config, Context: &pluginv1.StaticContext{
		Application: where.Application,
		Deployment:  where.Deployment,
		Replica:     where.Replica,
		Node:        where.Node,
		Job:         where.Job,
		ServiceName: where.ServiceName,
		PluginName:  where.PluginName,

		SamplingRatio: where.SamplingRatio,

		Terminal:        where.Terminal,
		TerminalColumns: uint32(where.TerminalColumns),
	}}
}

// errorsOf are the diagnostics of severity ERROR.
func errorsOf(reply *pluginv1.ConfigureResponse) []string {
	var faults []string
	for _, d := range reply.GetDiagnostics() {
		if isError(d) {
			faults = append(faults, strings.TrimPrefix(d.GetPath()+": "+clip(d.GetText()), ": "))
		}
	}
	return faults
}

func isError(d *pluginv1.Diagnostic) bool {
	return d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR
}

func (s *session) flush(ctx context.Context) (*pluginv1.FlushResponse, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	reply, err := s.lifecycle.Flush(ctx, &pluginv1.FlushRequest{Timeout: durationpb.New(s.patience)})
	return reply, s.callError(ctx, err)
}

func (s *session) shutdown(ctx context.Context) (*pluginv1.ShutdownResponse, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	reply, err := s.lifecycle.Shutdown(ctx, &pluginv1.ShutdownRequest{Timeout: durationpb.New(s.patience)})
	return reply, s.callError(ctx, err)
}

func (s *session) health(ctx context.Context) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	reply, err := healthpb.NewHealthClient(s.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	if err != nil {
		return fmt.Errorf("health check of service %q: %w", wire.HealthService, s.callError(ctx, err))
	}
	if got := reply.GetStatus(); got != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("health check of service %q: %v, want SERVING", wire.HealthService, got)
	}
	return nil
}

// release is go-plugin's way to ask a plugin to go away. One that is gone
// before it answers is fine.
func (s *session) release(ctx context.Context) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	err := s.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{})
	if e := wire.FromStatus(err); e != nil && e.Code != wire.CodeRetry {
		return s.callError(ctx, err)
	}
	return nil
}

// callError puts a call's error in words.
func (s *session) callError(ctx context.Context, err error) error {
	e := wire.FromStatus(err)
	switch {
	case e == nil:
		return nil
	case ctx.Err() != nil && e.Code == "DEADLINE_EXCEEDED":
		return fmt.Errorf("no answer within %v", s.patience)
	}
	return &callError{e}
}

// callError is an error of a call, with its code.
type callError struct{ answer *wire.Error }

// Error is code and text.
func (e *callError) Error() string { return e.answer.Code + ": " + e.answer.Error() }

// batch is a request and what the suite knows of it.
type batch struct {
	data  []byte
	spans int
	ids   []string // span ids, as hexadecimal digits
	// id and attempt go along as metadata; an empty id sends neither.
	id      string
	attempt int
	// more is other metadata, keys and values in turns.
	more []string
	// sent, if not nil, is called when the call has been written to the
	// connection: it is in front of all calls that are made later.
	sent func()
}

// export sends a batch and reads the answer. The error says that there was
// none: a broken connection, the end of the suite's patience or of ctx.
func (s *session) export(ctx context.Context, b batch) (Answer, error) {
	call, cancel := s.within(ctx)
	defer cancel()
	md := metadata.Pairs(b.more...)
	if b.id != "" {
		md.Set(wire.MetaBatchID, b.id)
		md.Set(wire.MetaAttempt, strconv.Itoa(max(1, b.attempt)))
	}
	var (
		news     = callNews{sent: b.sent}
		response wire.Incoming
		trailer  metadata.MD
	)
	request := &wire.Outgoing{Buffers: func() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(b.data)} }}
	err := s.conn.Invoke(context.WithValue(metadata.NewOutgoingContext(call, md), newsKey{}, &news),
		wire.ExportMethod, request, &response, grpc.Trailer(&trailer))
	if err != nil && !news.heard.Load() && !s.foreign {
		switch {
		case ctx.Err() != nil:
			return Answer{}, fmt.Errorf("Export of %d spans: %w", b.spans, context.Cause(ctx))
		case call.Err() != nil:
			return Answer{}, fmt.Errorf("Export of %d spans: no answer within %v", b.spans, s.patience)
		}
		return Answer{}, fmt.Errorf("Export of %d spans: no answer: %w", b.spans, wire.FromStatus(err))
	}
	answer, trouble := parseAnswer(response.Data, trailer, err)
	if s.watch != nil {
		s.watch.see(b.spans, answer, trouble)
	}
	return answer, nil
}

// mustExport is export of a batch that the plugin must take.
func (s *session) mustExport(ctx context.Context, b batch) error {
	answer, err := s.export(ctx, b)
	if err == nil && !answer.Delivered() {
		err = fmt.Errorf("Export of %d spans (%d bytes): answered %v, want OK", b.spans, len(b.data), answer)
	}
	return err
}

// callNews is what a call hears of its way.
type callNews struct {
	// heard: the status came from the plugin, and not from the end of a
	// connection.
	heard atomic.Bool
	sent  func() // as in batch
}

// newsKey is callNews in a context.
type newsKey struct{}

// hearing brings calls their news.
type hearing struct{}

var _ stats.Handler = hearing{}

// TagRPC changes nothing: export has put the news into ctx.
func (hearing) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC looks for the request, and for trailers: they carry the status.
func (hearing) HandleRPC(ctx context.Context, event stats.RPCStats) {
	news, ok := ctx.Value(newsKey{}).(*callNews)
	if !ok {
		return
	}
	switch event.(type) {
	case *stats.OutPayload:
		if news.sent != nil {
			news.sent()
		}
	case *stats.InTrailer:
		news.heard.Store(true)
	}
}

// TagConn changes nothing.
func (hearing) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn has nothing to do.
func (hearing) HandleConn(context.Context, stats.ConnStats) {}

// clip cuts a plugin's text to what fits a report.
func clip(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
