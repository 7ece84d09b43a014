package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/servetrace/servetrace/host"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// session is a plugin that is talked to as a host does, but a call at a time
// and with nothing tried again, so that each answer can be shown.
//
// It sends bytes of OTLP as they are, which a host.Host can not: that takes the
// spans of an OpenTelemetry SDK, and what those can not hold (fields of a later
// OTLP, mixed arrays, spans that were not sampled) would be lost on the way.
type session struct {
	is       host.Inspection
	cfg      host.Config
	log      *slog.Logger
	process  peer
	instance string // the first half of the batches' ids
	batches  int
}

// peer is what a session needs of a process, or of one that it is attached to.
type peer interface {
	Conn() grpc.ClientConnInterface
	Done() <-chan struct{}
	Exit() string
	Stop(ctx context.Context) error
}

// openSession starts the only plugin of cfg and configures it. The plugin's
// log goes to log, within ctx it must be ready. The host says what the plugin
// gets (host.Inspect), for which it starts it once before.
func openSession(ctx context.Context, cfg host.Config, settings settings, log *slog.Logger, logged io.Writer) (*session, error) {
	is, err := inspectOne(ctx, cfg, logged)
	if err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	s := &session{is: is, cfg: cfg, log: log, instance: hex.EncodeToString(id[:])}
	if s.process, err = s.connect(ctx, settings); err != nil {
		return nil, err
	}
	if err := s.introduce(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// inspectOne asks the host about the only plugin of cfg.
func inspectOne(ctx context.Context, cfg host.Config, logged io.Writer) (host.Inspection, error) {
	list, err := inspectAll(ctx, cfg, true, logged)
	if err != nil {
		return host.Inspection{}, err
	}
	return list[0], hint(list[0])
}

// inspectAll asks the host about all of them. What the plugins log is kept
// until it is known whether it matters: it does if one can not be used. What the
// host says of the list itself matters always.
func inspectAll(ctx context.Context, cfg host.Config, start bool, logged io.Writer) ([]host.Inspection, error) {
	var kept bytes.Buffer
	list := host.Inspect(ctx, cfg, start, host.WithLogger(newLog(&kept)))
	if len(list) == 1 && list[0].Name == "" { // the list is wrong, by what its folders have
		return nil, usageError{list[0].Err}
	}
	if !start { // so no plugin has said anything
		_, err := kept.WriteTo(logged)
		return list, err
	}
	for _, is := range list {
		if is.Err != nil {
			_, err := kept.WriteTo(logged)
			return list, err
		}
	}
	return list, nil
}

// connect starts the plugin as the host does, or attaches to it.
func (s *session) connect(ctx context.Context, settings settings) (peer, error) {
	ctx, cancel := startTime(ctx, s.cfg)
	defer cancel()
	if s.is.Attached {
		return launch.Attach(ctx, s.is.Path)
	}
	digest, err := hex.DecodeString(strings.TrimPrefix(s.is.Pin, "sha256:"))
	if err != nil {
		return nil, err // cannot happen: the host has read it
	}
	var environ []string
	for _, v := range s.is.Variables {
		if v.Base || v.Setting != "" || s.is.About.EnvAtStart {
			environ = append(environ, v.Name+"="+v.Value)
		}
	}
	return launch.Start(ctx, launch.Command{
		Name:          s.is.Name,
		Path:          s.is.Path,
		Digest:        digest,
		AllowWritable: s.cfg.AllowWritable,
		Secrets:       s.is.Secrets(),
		Environ:       environ,
		Stdout:        open(os.Stdout),
		SocketDirs:    []string{settings.getenv("XDG_RUNTIME_DIR")},
		Log:           s.log.With("plugin", s.is.Name),
	})
}

// open is f, or nil where it is closed, which would keep a child from starting.
func open(f *os.File) *os.File {
	if _, err := f.Stat(); err != nil {
		return nil
	}
	return f
}

// startTime bounds a start as the settings do.
func startTime(ctx context.Context, cfg host.Config) (context.Context, context.CancelFunc) {
	limit := cfg.StartTimeout
	if limit == 0 {
		limit = host.DefaultStartTimeout
	}
	return context.WithTimeout(ctx, limit)
}

func (s *session) lifecycle() pluginv1.LifecycleClient {
	return pluginv1.NewLifecycleClient(s.process.Conn())
}

// configured tells whether the plugin is one that is configured, flushed and
// shut down by this session: no plain OTLP receiver, and none that runs for
// others too.
func (s *session) configured() bool { return s.is.Described && !s.is.Attached }

// introduce has the plugin describe itself, as the contract has it, and
// configures it.
func (s *session) introduce(ctx context.Context) error {
	if !s.configured() {
		return nil
	}
	ctx, cancel := startTime(ctx, s.cfg)
	defer cancel()
	if _, err := s.lifecycle().Describe(ctx, &pluginv1.DescribeRequest{HostVersion: ownVersion()}); err != nil {
		return fmt.Errorf("describe: %w", wire.FromStatus(err))
	}
	granted := map[string]string{}
	for _, v := range s.is.Variables {
		if v.Granted() {
			granted[v.Name] = v.Value
		}
	}
	where := s.is.Context
	reply, err := s.lifecycle().Configure(ctx, &pluginv1.ConfigureRequest{
		Env:    granted,
		Config: s.is.Document(),
		Context: &pluginv1.StaticContext{
			Application: where.Application,
			Deployment:  where.Deployment,
			Replica:     where.Replica,
			Node:        where.Node,
			Job:         where.Job,
			ServiceName: where.ServiceName,
			PluginName:  s.is.Name,

			SamplingRatio: where.SamplingRatio,

			Terminal: false, TerminalColumns: 0, // its standard output is this one, and tells
		},
	})
	if err != nil {
		return fmt.Errorf("configure: %w", wire.FromStatus(err))
	}
	return s.diagnose(reply.GetDiagnostics())
}

// diagnose logs the plugin's warnings on its configuration; its errors are the
// error.
func (s *session) diagnose(list []*pluginv1.Diagnostic) error {
	var errs []error
	redactor := launch.NewRedactor(s.is.Secrets())
	for _, d := range list {
		text := wire.Clip(redactor.Text(d.GetText()))
		if d.GetPath() != "" {
			text = wire.Clip(redactor.Text(d.GetPath())) + ": " + text
		}
		if d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			errs = append(errs, errors.New(text))
			continue
		}
		s.log.Warn("plugin's remark on its configuration", "plugin", s.is.Name, "text", text)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configuration refused: %w", err)
	}
	return nil
}

// answer is what became of one batch.
type answer struct {
	err      *wire.Error // nil: the plugin took it
	rejected int         // by the back end, of a batch that was taken
	remark   string      // the back end's words on that
	filtered map[string]uint64
	unread   string // what of the answer makes no sense
}

// export sends one batch. It blocks until the plugin has answered or the
// settings' deadline of a call is over.
func (s *session) export(ctx context.Context, batch request) answer {
	limit := s.cfg.ExportTimeout
	if limit == 0 {
		limit = host.DefaultExportTimeout
	}
	// The plugin is told of that limit only. It ends an export a little before the
	// call's end: were that the end of ctx, it could answer batch after batch
	// without ctx being over.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
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
	out := &wire.Outgoing{Buffers: func() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(batch.data)} }}
	if err := s.process.Conn().Invoke(call, wire.ExportMethod, out, &response, grpc.Trailer(&trailer)); err != nil {
		return answer{err: wire.FromStatus(err)}
	}
	return readAnswer(response.Data, trailer, launch.NewRedactor(s.is.Secrets()))
}

// readAnswer takes an OK answer apart.
func readAnswer(response []byte, trailer metadata.MD, redactor launch.Redactor) answer {
	var (
		ans     answer
		message coltracepb.ExportTraceServiceResponse
	)
	if err := proto.Unmarshal(response, &message); err != nil {
		ans.unread = err.Error()
	}
	ans.rejected = int(max(0, message.GetPartialSuccess().GetRejectedSpans()))
	ans.remark = wire.Clip(redactor.Text(message.GetPartialSuccess().GetErrorMessage()))
	var unread string
	ans.filtered, unread = wire.ReadFiltered(redactor.Texts(trailer.Get(wire.MetaFiltered)))
	ans.unread = cmp.Or(unread, ans.unread)
	return ans
}

// finish has the plugin deliver what it holds and release everything. The
// error says what could not be delivered.
func (s *session) finish(ctx context.Context) error {
	if !s.configured() {
		return nil
	}
	var errs []error
	flushed, err := s.lifecycle().Flush(ctx, &pluginv1.FlushRequest{Timeout: timeLeft(ctx)})
	if err != nil {
		errs = append(errs, fmt.Errorf("flush: %w", wire.FromStatus(err)))
	}
	ended, err := s.lifecycle().Shutdown(ctx, &pluginv1.ShutdownRequest{Timeout: timeLeft(ctx)})
	if err != nil {
		errs = append(errs, fmt.Errorf("shutdown: %w", wire.FromStatus(err)))
	}
	if left := max(flushed.GetSpansLeft(), ended.GetSpansLeft()); left > 0 {
		errs = append(errs, fmt.Errorf("the plugin says that it has taken, and could not deliver, %d spans", left))
	}
	return errors.Join(errs...)
}

func timeLeft(ctx context.Context) *durationpb.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return durationpb.New(time.Until(deadline))
}

// stopTime is how long a plugin may take to end once it was asked to.
const stopTime = 2 * time.Second

// stop ends the process, also after a signal: it is killed when it takes too
// long.
func (s *session) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return s.process.Stop(ctx)
}

// How long a process may take to say that it lives, and one that serves no more
// to end, as in the host.
const (
	healthTimeout = 2 * time.Second
	endGrace      = 2 * time.Second
)

// gone says how the process ended, if it did by itself. One that has just
// broken off a call may take a moment to: it is asked whether it serves.
func (s *session) gone(ctx context.Context, ans answer) (exit string, ended bool) {
	grace := time.Duration(0)
	if ans.err != nil && ans.err.Code == wire.CodeRetry && !s.serves(ctx) {
		grace = endGrace
	}
	select {
	case <-s.process.Done():
		return s.process.Exit(), true
	default:
	}
	select {
	case <-s.process.Done():
		return s.process.Exit(), true
	case <-time.After(grace):
	case <-ctx.Done():
	}
	return "", false
}

// serves tells whether the plugin answers at all, if only that it knows no
// health.
func (s *session) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	_, err := healthpb.NewHealthClient(s.process.Conn()).Check(ctx, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	return err == nil || wire.FromStatus(err).Code != wire.CodeRetry
}
