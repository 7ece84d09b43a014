package servetrace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// ErrForced is what Run returns after a second signal, joined with what was cut
// short.
var ErrForced = errors.New("stopped by a second signal")

// LoadConfig reads the settings from the process's environment, and from the
// service file that SERVE_CONFIG names, as LoadConfigFile does.
func LoadConfig() (Config, error) { return LoadConfigFile("", os.Getenv) }

// Option changes how Run runs.
type Option struct{ apply func(*options) }

type options struct {
	log   *slog.Logger
	ready func(net.Addr)
}

// WithLogger sets where the service and its plugins log. The default is standard
// error, from Config.LogLevel on and in the form of Config.LogFormat, through
// tracing.NewLogHandler: what user code logs with the context of its request has
// the ids of request and trace. No request waits for the default: a queue stands
// before it, which drops lines that are read too slowly, and says so.
func WithLogger(log *slog.Logger) Option {
	return Option{func(o *options) { o.log = log }}
}

// WithReady has f called once, when requests are taken, with the address that
// the server listens on. Run waits for it: it must not block.
func WithReady(f func(addr net.Addr)) Option {
	return Option{func(o *options) { o.ready = f }}
}

// Run serves apps until ctx ends, or the process gets SIGTERM or SIGINT, or the
// listener fails; then it stops everything and returns. Apps must be new: one
// that was run can not run again.
//
// A wrong setting, and an address that can not be had, are errors at once. A
// plugin that does not start is none: the log says so and it is tried again.
// SIGHUP reloads the plugins in the background (host.Host.Reload), and has the
// apps be as the service file says then (serving.Server.Apply); one that comes
// during a reload has another follow it, and one that comes during the stop does
// nothing. The listener of Config.Admin runs before the plugins start
// and until after they have ended.
// After a stop the error says which requests were cut off; spans that could not
// be delivered are an error in the log, not of Run. A second signal cuts the
// stop short, and the error is then ErrForced; a third ends the process as the
// system does. SIGTERM and SIGINT that come within 100 ms of the first are the
// first: GNU timeout, for one, sends its signal to the process and to its group.
//
// While it runs, OpenTelemetry's global provider, propagator and error handler
// are its own. So is the default logger of package slog, and the output of package
// log with it, where neither Run is given a logger nor the program has set one. Only one Run at a time makes sense in a process: tracers that
// user code took from OpenTelemetry before the first Run stay with that one.
func Run(ctx context.Context, cfg Config, apps []*serving.App, opts ...Option) error {
	o := options{ready: func(net.Addr) {}}
	for _, opt := range opts {
		opt.apply(&o)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	// On a channel of its own: a signal that finds its channel full is lost, and
	// no number of reloads may cost the signal to stop.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	// A log that nobody reads any more must not end the service.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	var queue *logQueue
	if o.log == nil {
		var endLog func()
		o.log, queue, endLog = cfg.ownLog()
		defer endLog()
	}

	s := &service{cfg: cfg.settled(), log: o.log, logQueue: queue, hangups: hangups}
	s.listen(signals) // ends by stop
	err := s.start(ctx, apps)
	if err == nil {
		o.ready(s.server.Addr())
		err = s.wait(ctx)
	}
	return errors.Join(err, s.stop())
}

// service is what Run has started so far.
type service struct {
	cfg Config
	log *slog.Logger
	// logQueue is where log writes; nil: the log is the program's.
	logQueue *logQueue

	host    *host.Host
	admin   *admin.Server   // nil: there is none
	reloads *reloads        // of the plugins; nil: tracing is off
	apps    *reloads        // of the apps; nil: there is no service file
	server  *serving.Server // nil until it is started
	// closers undo what was started, the last one first.
	closers []func(context.Context) error
	hangups <-chan os.Signal // SIGHUP

	asked    chan os.Signal  // the first signal to stop
	patience context.Context // of a stop; ends by the second
	unlisten func()          // returns when no signal is heard any more
	// signals to stop that were heard so far, and when the first was: listen's.
	signals int
	first   time.Time
}

// listen hears the signals to stop from now on, whatever the service does or waits
// for: the first is for wait, and the second ends the patience of stop.
func (s *service) listen(signals <-chan os.Signal) {
	s.asked = make(chan os.Signal, 1)
	patience, lose := context.WithCancelCause(context.Background())
	s.patience = patience
	ended, listening := make(chan struct{}), make(chan struct{})
	s.unlisten = func() {
		close(ended)
		<-listening
	}
	go func() { // ends by unlisten
		defer close(listening)
		for s.signals < 2 {
			select {
			case got := <-signals:
				s.hear(time.Now())
				select {
				case s.asked <- got:
				default: // it was asked before
				}
			case <-ended:
				return
			}
		}
		lose(ErrForced)
		// A third signal finds nobody listening and does what it always does.
		signal.Reset(syscall.SIGTERM, os.Interrupt)
	}()
}

// samePress is for how long after the first signal another is taken for the
// same: nobody presses twice so fast.
const samePress = 100 * time.Millisecond

// hear counts a signal to stop, unless it is the first one again.
func (s *service) hear(now time.Time) {
	switch {
	case s.signals == 0:
		s.first = now
	case s.signals == 1 && now.Sub(s.first) < samePress:
		return
	}
	s.signals++
}

// start starts the parts in their order. What it has started before an error
// is stopped by stop.
func (s *service) start(ctx context.Context, apps []*serving.App) error {
	if err := s.cfg.Validate(); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	for _, text := range s.cfg.Tracing.Warnings {
		s.log.Warn("setting is not used", "setting", text)
	}
	hostConfig := s.cfg.Host
	hostConfig.Context.SamplingRatio = s.cfg.Tracing.RootRatio()
	h, err := host.New(hostConfig, host.WithLogger(s.log))
	if err != nil {
		return err
	}
	s.host = h
	if err := s.startAdmin(ctx); err != nil {
		return err
	}
	provider, err := s.startTracing(ctx)
	if err != nil {
		return err
	}
	environ := s.cfg.Host.Environ
	if environ == nil {
		environ = os.Environ()
	}
	s.watchVariables(environ)
	s.setGlobals(provider)
	server, err := serving.New(s.cfg.Serving, apps, serving.WithTracing(provider), serving.WithLogger(s.log))
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if err := s.show(server); err != nil {
		return err
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	s.server = server
	s.closers = append(s.closers, s.drain)
	if s.cfg.readApps != nil {
		s.apps = startReloads(ofApps, s.applyFile, s.log)
		s.closers = append(s.closers, s.apps.stop)
	}
	s.announce(provider)
	return nil
}

// startTracing starts the host, if there is a plugin, and makes the provider
// that owns it. SIGHUP has something to do from then on.
func (s *service) startTracing(ctx context.Context) (*tracing.Provider, error) {
	if !s.host.Enabled() {
		s.closers = append(s.closers, func(context.Context) error {
			s.log.Info("stopped") // with tracing, endTracing says it
			return nil
		})
		return tracing.NewProvider(s.cfg.Tracing)
	}
	provider, err := tracing.NewProvider(s.cfg.Tracing, s.host)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func(ctx context.Context) error {
		s.endTracing(ctx, provider)
		return nil
	})
	s.makeSpanFolder()
	if err := s.host.Start(ctx); err != nil {
		return nil, err
	}
	s.reloads = startReloads(ofPlugins, s.host.Reload, s.log)
	s.closers = append(s.closers, s.reloads.stop)
	return provider, nil
}

// setGlobals hands provider to user code that calls otel.Tracer, until stop.
func (s *service) setGlobals(provider *tracing.Provider) {
	tracers, propagator, handler := otel.GetTracerProvider(), otel.GetTextMapPropagator(), otel.GetErrorHandler()
	s.closers = append(s.closers, func(context.Context) error {
		otel.SetTracerProvider(tracers)
		otel.SetTextMapPropagator(propagator)
		otel.SetErrorHandler(handler)
		return nil
	})
	otel.SetTracerProvider(provider.TracerProvider())
	otel.SetTextMapPropagator(provider.Propagator())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		s.log.Warn("opentelemetry", "error", err)
	}))
}

// announce is the one line that says what runs.
func (s *service) announce(provider *tracing.Provider) {
	args := []any{"url", "http://" + s.server.Addr().String()}
	if addr := s.server.GRPCAddr(); addr != nil {
		args = append(args, "grpc", addr.String())
	}
	switch {
	case provider.Enabled():
		args = append(args, "tracing", "on", "plugins", s.plugins(),
			"sampler", string(s.cfg.Tracing.Sampler), "ratio", s.cfg.Tracing.Ratio,
			"trust_inbound", s.cfg.Tracing.TrustInbound)
	case s.cfg.Tracing.DisabledBy != "":
		args = append(args, "tracing", "off", "because", s.cfg.Tracing.DisabledBy)
	case s.cfg.File != "":
		args = append(args, "tracing", "off", "because", host.EnvPlugins+" is not set, and the service file starts no plugin")
	default:
		args = append(args, "tracing", "off", "because", host.EnvPlugins+" is not set")
	}
	if s.admin != nil {
		args = append(args, "admin", s.admin.URL())
	}
	if s.cfg.File != "" {
		args = append(args, "file", s.cfg.File)
	}
	if s.cfg.SpanFolder != "" {
		args = append(args, "span_files", s.cfg.SpanFolder)
	}
	s.log.Info("serving", append(args, "pid", os.Getpid())...)
}

// plugins lists the plugins with their states.
func (s *service) plugins() string {
	var list []string
	for _, x := range s.host.Stats().Exporters {
		list = append(list, x.Name+" ("+x.State.String()+")")
	}
	return strings.Join(list, ", ")
}

// wait returns when the service is to stop; the error is the listener's.
func (s *service) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.log.Info("stopping", "because", context.Cause(ctx))
			return nil
		case got := <-s.asked:
			s.log.Info("stopping", "because", got.String())
			return nil
		case got := <-s.hangups:
			s.hangUp(got)
		case <-s.server.Done():
			s.log.Info("stopping", "because", "the listener failed")
			return s.server.Err()
		}
	}
}

// hangUp has everything reloaded that can be.
func (s *service) hangUp(got os.Signal) {
	if s.reloads == nil && s.apps == nil {
		s.log.Info("there are no plugins to reload: tracing is off", "signal", got.String())
	}
	for _, r := range []*reloads{s.reloads, s.apps} {
		if r != nil {
			r.ask()
		}
	}
}

// applyFile has the apps be as the service file says now.
func (s *service) applyFile(ctx context.Context) error {
	configs, err := s.cfg.readApps()
	if err != nil {
		return err
	}
	return s.server.Apply(ctx, configs)
}

// stop undoes what was started, the last one first. The second signal since
// the start ends the patience of all of them.
func (s *service) stop() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer(s.patience))
	}
	s.unlisten()
	return errors.Join(append(errs, context.Cause(s.patience))...)
}

// drain has the server stop: health first, then requests in flight finish, within
// the shutdown timeout.
func (s *service) drain(ctx context.Context) error {
	timeout := s.cfg.Serving.ShutdownTimeout
	if timeout == 0 {
		timeout = serving.DefaultShutdownTimeout
	}
	over := fmt.Errorf("%s=%v is over: %w", serving.EnvShutdownTimeout, timeout, context.DeadlineExceeded) // the error says it
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Serving.MinDrainingPeriod+timeout, over)
	defer cancel()
	return s.server.Shutdown(ctx)
}

// endTracing shuts the provider down and closes the books in the log. The host
// bounds the time itself.
func (s *service) endTracing(ctx context.Context, provider *tracing.Provider) {
	err := provider.Shutdown(ctx)
	stats := s.host.Stats()
	args := []any{"spans", stats.Ended}
	lost := total(stats.Refused)
	args = appendCounts(args, "refused", stats.Refused)
	for _, x := range stats.Exporters {
		lost += total(x.Rejected) + total(x.Dropped)
		args = append(args, x.Name+".delivered", x.Delivered)
		args = appendCounts(args, x.Name+".filtered", x.Filtered)
		args = appendCounts(args, x.Name+".rejected", x.Rejected)
		args = appendCounts(args, x.Name+".dropped", x.Dropped)
	}
	if err != nil {
		args = append(args, "error", err)
	}
	if err != nil || lost > 0 {
		s.log.Error("stopped; spans were lost", args...)
		return
	}
	s.log.Info("stopped", args...)
}

func appendCounts(args []any, name string, counts map[string]uint64) []any {
	if len(counts) == 0 {
		return args
	}
	return append(args, name, counts)
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
