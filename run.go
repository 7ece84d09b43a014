package servetrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"go.opentelemetry.io/otel"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/logqueue"
	"github.com/servetrace/servetrace/internal/unread"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// Option configures Run.
type Option struct{ apply func(*options) }

type options struct {
	log   *slog.Logger
	ready func(net.Addr)
}

// WithLogger sets the logger of the service and its plugins. The default logger writes to
// standard error, from Config.LogLevel on, in the format of Config.LogFormat. It adds the ids
// of request and trace to lines that user code logs with a request's context, as
// tracing.NewLogHandler does.
//
// The default logger has a queue, so that a request does not wait for the reader of the log.
// If the reader is too slow, the queue drops lines, and the log reports their number. Only a
// line of user code at level ERROR may wait for the reader, at most 100 ms.
func WithLogger(log *slog.Logger) Option {
	return Option{func(o *options) { o.log = log }}
}

// WithReady sets a function that Run calls once, when the server accepts requests. addr is
// the server's address. f must not block, because Run waits for it.
func WithReady(f func(addr net.Addr)) Option {
	return Option{func(o *options) { o.ready = f }}
}

// Run serves apps until ctx ends, the process gets SIGTERM or SIGINT, or a listener
// fails. Then it stops everything and returns. An app can be run only once.
//
// An invalid setting or an unavailable address is returned as an error at once. A
// plugin that does not start is not an error: it is logged and started again. SIGHUP
// reloads the plugins in the background (host.Host.Reload) and applies the apps'
// settings in the service file (serving.Server.Apply). A SIGHUP during a reload starts
// another reload after it, and a SIGHUP during the stop is ignored. The listener of
// Config.Admin starts before the plugins and ends after them.
//
// After a stop the error lists the requests that were cut off. Undelivered spans are
// logged as an error, but not returned. A second signal cuts the stop short, and the
// error then wraps ErrForced. A third signal ends the process by its default action.
// Signals within 100 ms of the first count as the same signal, because GNU timeout, for
// example, signals the process and its group.
//
// While it runs, Run sets OpenTelemetry's global provider, propagator and error handler.
// It also sets the default of package slog and the output of package log, except if
// WithLogger is given or the program has set a default. Only one Run at a time makes
// sense in a process. Tracers that user code took from OpenTelemetry before the first Run
// stay bound to the first Run.
func Run(ctx context.Context, cfg Config, apps []*serving.App, opts ...Option) error {
	o := options{ready: func(net.Addr) {}}
	for _, opt := range opts {
		opt.apply(&o)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	// SIGHUP has its own channel. A signal to a full channel is lost, so in a common channel a
	// SIGHUP could displace a signal to stop.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	// Without a handler for SIGPIPE, a write to a closed standard error would end the
	// process.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	var queue *logqueue.Queue
	if o.log == nil {
		var endLog func()
		o.log, queue, endLog = cfg.startLog()
		defer endLog()
	}

	s := &service{cfg: cfg.withSharedSettings(), log: o.log, logQueue: queue, hangups: hangups}
	s.signals = handleStopSignals(signals, func() { signal.Reset(syscall.SIGTERM, os.Interrupt) })
	err := s.start(ctx, apps)
	if err == nil {
		o.ready(s.server.Addr())
		err = s.wait(ctx)
	}
	return errors.Join(err, s.stop())
}

// service holds the parts that Run has started so far.
type service struct {
	cfg Config
	log *slog.Logger
	// logQueue is the queue of log. Nil if the program brings its own logger.
	logQueue *logqueue.Queue

	host          *host.Host
	admin         *admin.Server   // nil if there is no listener
	pluginReloads *reloads        // nil if tracing is off
	appReloads    *reloads        // nil if there is no service file
	server        *serving.Server // nil until the server is started
	// closers stop the started parts, the last part first.
	closers []func(context.Context) error
	hangups <-chan os.Signal // receives SIGHUP

	signals stopSignals // SIGTERM and SIGINT
}

// start starts the parts of the service in order. If it returns an error, the caller must
// call stop, which stops the parts that have started.
func (s *service) start(ctx context.Context, apps []*serving.App) error {
	if err := s.cfg.Validate(); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	for _, text := range s.cfg.Tracing.Warnings {
		s.log.Warn("setting is not used", "setting", text)
	}
	hostConfig := s.cfg.Host
	hostConfig.Context.SamplingRatio = s.cfg.Tracing.RootRatio()
	recent := host.NewRecent(s.cfg.Admin.RecentBytes()) // keeps the last batches for the status page
	h, err := host.New(hostConfig, host.WithLogger(s.log), host.WithRecent(recent))
	if err != nil {
		return err
	}
	s.host = h
	if s.cfg.Admin.Enabled() {
		if err := s.startAdmin(ctx, recent); err != nil {
			return err
		}
	}
	logErrors := s.handleErrors()
	provider, err := s.startTracing(ctx)
	if err != nil {
		return err
	}
	logErrors()
	environ := s.cfg.Host.Environ
	if environ == nil {
		environ = os.Environ()
	}
	// The watch warns of variables that neither the service nor a plugin reads.
	watch := unread.Watch{Environ: environ, Load: readSettings, Process: "service", Host: s.host, Config: s.cfg.Host, Log: s.log}
	stopWatch := watch.Start()
	s.closers = append(s.closers, func(context.Context) error { stopWatch(); return nil })
	s.setGlobals(provider)
	server, err := serving.New(s.cfg.Serving, apps, serving.WithTracing(provider), serving.WithLogger(s.log))
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if s.admin != nil {
		if err := showServer(s.admin, server); err != nil {
			return err
		}
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	s.server = server
	s.closers = append(s.closers, s.drain)
	if s.cfg.readApps != nil {
		s.appReloads = startReloads(ofApps, s.applyFile, s.log)
		s.closers = append(s.closers, s.appReloads.stop)
	}
	s.announce(provider)
	return nil
}

// startAdmin starts the admin listener. The listener starts before all other parts and
// ends after them, so that operators can watch a long start or stop.
func (s *service) startAdmin(ctx context.Context, recent *host.Recent) error {
	server, err := admin.NewServer(s.cfg.Admin, s.host.Stats, s.log)
	if err != nil { // cannot happen: Validate has checked the settings
		return err
	}
	if s.logQueue != nil {
		if err := server.ShowLog(s.logQueue.Lost); err != nil {
			return err // cannot happen: ShowLog is called once
		}
	}
	s.closers = append(s.closers, server.Shutdown)
	if s.host.Enabled() {
		if s.cfg.Admin.Capture {
			server.ServeCapture(func(plugin string) (*host.Capture, error) { return host.OpenCapture(s.host, plugin) })
		}
		if !s.cfg.Admin.NoTraces {
			server.ShowTraces(recent.Batches)
		}
		server.ShowSampling(admin.Sampling{
			Sampler: string(s.cfg.Tracing.Sampler), Ratio: s.cfg.Tracing.RootRatio(), TrustInbound: s.cfg.Tracing.TrustInbound,
		})
	}
	s.admin = server
	return server.Start(ctx)
}

// handleErrors sets OpenTelemetry's global error handler. The handler drops errors until
// logErrors is called, and then logs them: the SDK reads the variable of the sampler while the
// provider is made, and LoadConfigFile has already reported the errors of this variable. The
// method stop restores the earlier handler.
func (s *service) handleErrors() (logErrors func()) {
	before := otel.GetErrorHandler()
	s.closers = append(s.closers, func(context.Context) error {
		otel.SetErrorHandler(before)
		return nil
	})
	var started atomic.Bool
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if started.Load() {
			s.log.Warn("opentelemetry", "error", err)
		}
	}))
	return func() { started.Store(true) }
}

// startTracing starts the host, if there is a plugin, and returns the provider that owns
// the host. It also starts the goroutine that reloads plugins.
func (s *service) startTracing(ctx context.Context) (*tracing.Provider, error) {
	if !s.host.Enabled() {
		s.closers = append(s.closers, func(context.Context) error {
			s.log.Info("stopped") // if there is a plugin, endTracing logs this line
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
	s.pluginReloads = startReloads(ofPlugins, s.host.Reload, s.log)
	s.closers = append(s.closers, s.pluginReloads.stop)
	return provider, nil
}

// readSettings calls getenv with the name of every variable that the service reads. Package
// unread warns of the other variables that look like settings.
func readSettings(getenv func(string) string) {
	_, _ = LoadConfigFile("", getenv) // an empty environment has no errors
}

// setGlobals sets OpenTelemetry's global provider and propagator. The method stop restores
// the earlier values.
func (s *service) setGlobals(provider *tracing.Provider) {
	tracers, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	s.closers = append(s.closers, func(context.Context) error {
		otel.SetTracerProvider(tracers)
		otel.SetTextMapPropagator(propagator)
		return nil
	})
	otel.SetTracerProvider(provider.TracerProvider())
	otel.SetTextMapPropagator(provider.Propagator())
}

// announce logs the start line, which describes the whole service.
func (s *service) announce(provider *tracing.Provider) {
	args := []any{"url", "http://" + s.server.Addr().String()}
	if addr := s.server.GRPCAddr(); addr != nil {
		args = append(args, "grpc", addr.String())
	}
	if addr := s.server.CallAddr(); addr != nil {
		args = append(args, "calls", addr.String())
	}
	switch {
	case provider.Enabled():
		args = append(args, "tracing", "on", "plugins", s.plugins(),
			"sampler", string(s.cfg.Tracing.Sampler), "ratio", s.cfg.Tracing.RootRatio(),
			"trust_inbound", s.cfg.Tracing.TrustInbound)
	case s.cfg.File != "":
		args = append(args, "tracing", "off", "because", cmp.Or(s.cfg.Tracing.DisabledBy, host.EnvPlugins+" is not set, and tracing_config.enabled is not true in the service file"))
	default:
		args = append(args, "tracing", "off", "because", cmp.Or(s.cfg.Tracing.DisabledBy, host.EnvPlugins+" is not set"))
	}
	if period := s.cfg.Serving.MinDrainingPeriod; period > 0 {
		args = append(args, "min_draining_period", period)
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

// plugins returns the names of the plugins with their states, for the start line.
func (s *service) plugins() string {
	var list []string
	for _, x := range s.host.Stats().Plugins() {
		list = append(list, x.Name+" ("+x.State.String()+")")
	}
	return strings.Join(list, ", ")
}

// wait blocks until the service must stop. It returns an error if a listener failed.
func (s *service) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.log.Info("stopping", "because", context.Cause(ctx))
			return nil
		case got := <-s.signals.asked:
			s.log.Info("stopping", "because", got.String()+" signal received") // as signal.NotifyContext names it in a relay
			return nil
		case got := <-s.hangups:
			s.reloadAll(got)
		case <-s.server.Done():
			s.log.Info("stopping", "because", "the listener failed")
			return s.server.Err()
		}
	}
}

// reloadAll starts a reload of the plugins and of the apps' settings, after the signal got.
func (s *service) reloadAll(got os.Signal) {
	if s.pluginReloads == nil && s.appReloads == nil {
		s.log.Info("there are no plugins to reload: tracing is off", "signal", got.String())
	}
	for _, r := range []*reloads{s.pluginReloads, s.appReloads} {
		if r != nil {
			r.ask()
		}
	}
}

// applyFile reads the service file again and applies the apps' settings in it.
func (s *service) applyFile(ctx context.Context) error {
	configs, err := s.cfg.readApps()
	if err != nil {
		return fileError{err}
	}
	return s.server.Apply(ctx, configs)
}

// stop stops the parts that have started, the last part first. It joins their errors. A
// second signal ends the context that they get.
func (s *service) stop() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer(s.signals.forced))
	}
	s.signals.end()
	return errors.Join(append(errs, context.Cause(s.signals.forced))...)
}

// drain shuts the server down. Running requests may finish within MinDrainingPeriod and
// ShutdownTimeout together.
func (s *service) drain(ctx context.Context) error {
	timeout := s.cfg.Serving.ShutdownTimeout
	if timeout == 0 {
		timeout = serving.DefaultShutdownTimeout
	}
	over := fmt.Errorf("%s=%v is over: %w", serving.EnvShutdownTimeout, timeout, context.DeadlineExceeded) // the error text of Shutdown names this cause
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Serving.MinDrainingPeriod+timeout, over)
	defer cancel()
	return s.server.Shutdown(ctx)
}

// endTracing shuts the provider down, and with it the host, which bounds the time. Then it
// logs the numbers of delivered and lost spans.
func (s *service) endTracing(ctx context.Context, provider *tracing.Provider) {
	err := provider.Shutdown(ctx)
	args, lost := s.host.Stats().LogArgs()
	if err != nil {
		args = append(args, "error", err)
	}
	if err != nil || lost > 0 {
		s.log.Error("stopped; spans were lost", args...)
		return
	}
	s.log.Info("stopped", args...)
}
