package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/logqueue"
	"github.com/servetrace/servetrace/internal/servicefile"
	"github.com/servetrace/servetrace/internal/unread"
	"github.com/servetrace/servetrace/relay"
	"github.com/servetrace/servetrace/tracing"
)

const relayLong = `Take spans by OTLP from programs in any language, and give them to the plugins of
SERVE_TRACING_EXPORTER_PLUGIN.

Without an address, it listens at 127.0.0.1:4317 for OTLP/gRPC and at 127.0.0.1:4318
for OTLP/HTTP. A Unix socket gets mode 0600, in a folder that is created with mode 0700,
and takes only programs of the same user and of root. If another relay listens at the
socket, the command ends with exit code 0.

SIGHUP reloads the plugins. SIGTERM or SIGINT closes the listeners, answers the requests
in progress, sends the waiting spans within SERVE_TRACING_STOP_TIMEOUT, and ends the
plugins. A second signal ends the relay at once.

The exit code is 1 if a listener fails or spans were lost at the stop, and 2 for a
wrong setting or an address that is not available.`

const relayExample = `  SERVE_TRACING_EXPORTER_PLUGIN=otlp servetrace relay --socket /run/servetrace/relay.sock --linger 30s`

// newRelay returns "servetrace relay".
func newRelay(s settings, environ []string) *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{
		Use:     "relay",
		Short:   "Take spans by OTLP from any program, and give them to plugins",
		Long:    relayLong,
		Example: relayExample,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s, environ) },
	}
	f.add(cmd.Flags())
	return cmd
}

// relayFlags holds the flags of "relay".
type relayFlags struct {
	all           *pflag.FlagSet
	config, admin string
	linger        time.Duration
}

// relayVariables maps flags to the variables that they override.
var relayVariables = map[string]string{
	"socket": relay.EnvSocket, "grpc": relay.EnvGRPC, "http": relay.EnvHTTP, "wait-for-result": relay.EnvWaitForResult,
}

func (f *relayFlags) add(flags *pflag.FlagSet) {
	f.all = flags
	flags.String("socket", "", "Unix socket at this `FILE` for OTLP/gRPC")
	flags.String("grpc", "", "`address` for OTLP/gRPC: host:port, or a port of 127.0.0.1")
	flags.String("http", "", "`address` for OTLP/HTTP: the same, or unix:///path")
	flags.Bool("wait-for-result", false, "answer requests after the delivery, unless the sender asks otherwise")
	flags.DurationVar(&f.linger, "linger", 0, "end after this `duration` without a connection; 0 is never")
	flags.StringVar(&f.config, "config", "", "service `FILE` (default: that of "+servetrace.EnvConfig+")")
	flags.StringVar(&f.admin, "admin", "", "`address` of the admin listener: host:port, or a port of 127.0.0.1")
}

// getenv returns a getenv function that returns the values of the flags, and otherwise the
// environment. It leaves out --linger 0, which has no value of the variable.
func (f *relayFlags) getenv(s settings) (func(string) string, error) {
	other := map[string]string{}
	for name, variable := range relayVariables {
		if flag := f.all.Lookup(name); flag.Changed {
			other[variable] = flag.Value.String()
		}
	}
	if f.linger != 0 {
		other[relay.EnvLinger] = f.linger.String()
	}
	if f.admin != "" {
		name, port, err := net.SplitHostPort(f.admin)
		if _, portErr := strconv.ParseUint(f.admin, 10, 16); portErr == nil {
			name, port, err = admin.DefaultHost, f.admin, nil
		}
		if err != nil {
			return nil, usagef("--admin %q: want host:port, or a port of %s", f.admin, admin.DefaultHost)
		}
		other[admin.EnvHost], other[admin.EnvPort] = name, port
	}
	return s.with(other), nil
}

// read returns the settings of the process, such as the plugins, and the settings of the
// relay's listeners.
func (f *relayFlags) read(s settings) (cfg servetrace.Config, own relay.Config, err error) {
	getenv, err := f.getenv(s)
	if err != nil {
		return cfg, own, err
	}
	if cfg, err = servetrace.LoadConfigFile(f.config, getenv); err != nil {
		return cfg, own, usagef("settings: %w", err)
	}
	if own, err = readRelay(cfg.File, getenv); err != nil {
		return cfg, own, usagef("settings: %w", err)
	}
	if f.all.Changed("linger") {
		own.Linger = f.linger // also for 0, which is no value of the variable
	}
	if cfg.Host.Plugins == "" {
		return cfg, own, usagef("the relay has no plugin to send spans to: %s", settings{getenv}.off(""))
	}
	return cfg, own, nil
}

// readRelay returns the settings of the relay, from the environment and from a service file
// that was parsed without errors. path may be empty.
func readRelay(path string, getenv func(string) string) (relay.Config, error) {
	if path == "" {
		return relay.ConfigFromEnv(getenv)
	}
	data, err := servicefile.Read(path)
	if err != nil {
		return relay.Config{}, err
	}
	file := servicefile.Parse(path, data, getenv)
	file.Try(func(getenv func(string) string) error {
		_, err := relay.ConfigFromEnv(getenv)
		return err
	})
	cfg, err := relay.ConfigFromEnv(file.Getenv)
	err = file.Place(err)
	return cfg, errors.Join(file.Err(), err)
}

// run runs the relay until the command's context or the server ends.
func (f *relayFlags) run(cmd *cobra.Command, s settings, environ []string) error {
	cfg, own, err := f.read(s)
	if err != nil {
		return err
	}
	// Without this handler of SIGPIPE, a write to standard error would end the process if
	// the reader of the log has ended.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	// Without this handler, SIGHUP would end the process during the start and the stop.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	// The queue drops lines, so that neither senders nor the stop wait for a slow reader of
	// the log.
	queue := logqueue.New(cmd.ErrOrStderr(), func(dropped uint64) []byte { return dropNotice(cfg, dropped) })
	defer queue.Close()
	r := relayProcess{log: relayLog(queue, cfg), logQueue: queue, hangups: hangups}
	for _, text := range cfg.Tracing.Warnings {
		r.log.Warn("setting is not used", "setting", text)
	}
	if s.getenv(tracing.EnvSamplingRatio) != "" {
		r.log.Warn("setting is not used", "setting", tracing.EnvSamplingRatio+": a relay takes every span that is sent to it; "+
			"set the ratio in the sending program (OTEL_TRACES_SAMPLER), or use the processor sample")
	}
	if s.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if s.getenv("GOMAXPROCS") == "" {
		limitProcs(&cfg.Host)
	}
	err = r.start(cmd.Context(), cfg, own)
	if running, ok := errors.AsType[*relay.RunningError](err); ok {
		r.log.Info("another relay listens at the socket already; this one ends", "socket", running.Socket, "pid", running.PID)
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	environ = without(environ, slices.Concat(raySettings, pythonSettings))
	watch := unread.Watch{Environ: environ, Load: readSettings, Process: "relay", Host: r.host, Config: cfg.Host, Log: r.log}
	stopWatch := watch.Start()
	err = r.wait(cmd.Context())
	stopWatch()
	return errors.Join(err, r.stop())
}

// Prefixes of variables that this program does not read, although their names look like its
// settings: variables of Ray Serve, and variables of the Python package servetrace. A
// relay has them in its environment if the Python package has started it.
var (
	raySettings    = []string{"RAY_SERVE_TRACING_", "ANYSCALE_TRACING_"}
	pythonSettings = []string{"SERVE_TRACING_RELAY=", "SERVE_TRACING_RELAY_"}
)

// without returns the entries of environ that begin with none of the prefixes.
func without(environ, prefixes []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}

// readSettings calls getenv for the name of every setting of a service and of a relay.
func readSettings(getenv func(string) string) {
	_, _ = servetrace.LoadConfigFile("", getenv) // no error, because all values are empty
	_, _ = readRelay("", getenv)                 // no error for the same reason
}

// memoryLimit is the soft limit of the Go runtime for the relay's memory, in bytes. It is
// larger than the sum of the bounds on waiting spans and on requests in the default
// settings.
const memoryLimit = 384 << 20

// limitProcs sets the relay's GOMAXPROCS to half of the CPUs, at least one, so that the
// senders have the other half. The default for plugins is a quarter of GOMAXPROCS, so
// limitProcs sets it to a quarter of all CPUs.
func limitProcs(cfg *host.Config) {
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(1, all/2))
	if _, ok := cfg.PluginMaxProcs[""]; !ok {
		procs := map[string]int{"": max(1, all/4)}
		maps.Copy(procs, cfg.PluginMaxProcs)
		cfg.PluginMaxProcs = procs
	}
}

// relayLog returns the logger of a relay, with the level and the format of the settings.
func relayLog(w io.Writer, cfg servetrace.Config) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == servetrace.LogJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// dropNotice returns the line of the log that has the number of dropped lines.
func dropNotice(cfg servetrace.Config, dropped uint64) []byte {
	var line bytes.Buffer
	relayLog(&line, cfg).Log(context.Background(), max(cfg.LogLevel, slog.LevelWarn),
		"log lines dropped: the log is read more slowly than it is written", "lines", dropped)
	return line.Bytes()
}

// relayProcess is a running relay: the host with its plugins, the listeners and the admin
// listener.
type relayProcess struct {
	log      *slog.Logger
	logQueue *logqueue.Queue  // the queue that log writes to
	hangups  <-chan os.Signal // delivers SIGHUP
	host     *host.Host
	server   *relay.Server
	admin    *admin.Server // nil if there is no listener
}

// start starts the listeners, then the admin listener and the host. The listeners are first,
// so that no plugin starts if another relay listens at the socket.
func (r *relayProcess) start(ctx context.Context, cfg servetrace.Config, own relay.Config) (err error) {
	recent := host.NewRecent(cfg.Admin.RecentBytes())
	if r.host, err = host.New(cfg.Host, host.WithLogger(r.log), host.WithRecent(recent)); err != nil {
		return err
	}
	if r.server, err = relay.New(own, r.host, r.log); err != nil {
		return err
	}
	if err := r.server.Start(ctx); err != nil {
		return err
	}
	args := []any{}
	for _, l := range r.server.Listeners() {
		args = append(args, l.Protocol, l.Endpoint)
	}
	if cfg.Admin.Enabled() {
		if err := r.startAdmin(ctx, cfg.Admin, recent); err != nil {
			return errors.Join(err, r.server.Close(ctx))
		}
		args = append(args, "admin", r.admin.URL())
	}
	if cfg.File != "" {
		args = append(args, "file", cfg.File)
	}
	var plugins []string
	for _, x := range r.host.Stats().Plugins() {
		plugins = append(plugins, x.Name)
	}
	r.log.Info("relay listens", append(args, "plugins", strings.Join(plugins, ", "), "pid", os.Getpid())...)
	return r.host.Start(context.WithoutCancel(ctx)) // without the cancelation by a signal, because stop ends the host
}

// startAdmin starts the admin listener.
func (r *relayProcess) startAdmin(ctx context.Context, cfg admin.Config, recent *host.Recent) (err error) {
	if r.admin, err = admin.NewServer(cfg, r.host.Stats, r.log); err != nil {
		return err
	}
	if !cfg.NoTraces {
		r.admin.ShowTraces(recent.Batches)
	}
	if err := errors.Join(r.admin.ShowLog(r.logQueue.Lost), r.admin.ShowRelay(r.server.Status)); err != nil {
		return err // no error, because each function is called once
	}
	if cfg.Capture {
		r.admin.ServeCapture(func(plugin string) (*host.Capture, error) { return host.OpenCapture(r.host, plugin) })
	}
	return r.admin.Start(ctx)
}

// wait blocks until the relay must stop. SIGHUP reloads the plugins meanwhile.
func (r *relayProcess) wait(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var reloads sync.WaitGroup
	defer reloads.Wait()
	defer cancel()
	reloads.Go(func() { r.reload(ctx) })
	select {
	case <-ctx.Done():
		r.log.Info("stopping", "because", context.Cause(ctx))
		return nil
	case <-r.server.Done():
		reason, err := r.server.Err()
		r.log.Info("stopping", "because", reason)
		return err
	}
}

// reload reloads the plugins at each SIGHUP until ctx ends.
func (r *relayProcess) reload(ctx context.Context) {
	for {
		select {
		case <-r.hangups:
			r.log.Info("reloading plugins")
			if err := r.host.Reload(ctx); err != nil && ctx.Err() == nil {
				r.log.Error("some plugins stay as they were", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

const (
	// drainTimeout bounds the wait for the requests in progress, before the host stops.
	drainTimeout = 2 * time.Second
	// answerTimeout bounds the wait, after the host has stopped, for the answers to senders
	// that wait for the delivery.
	answerTimeout = time.Second
)

// stop ends the listeners, the host and the admin listener, and logs the number of spans by
// outcome.
func (r *relayProcess) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	_ = r.server.Shutdown(ctx) // after an error, Close answers the remaining requests
	_, lostBefore := r.host.Stats().LogArgs()
	err := r.host.Shutdown(context.Background())
	ctx, cancel = context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := r.server.Close(ctx); err != nil {
		r.log.Warn("connections are closed before their answer", "error", err)
	}
	if r.admin != nil {
		err = errors.Join(err, r.admin.Shutdown(ctx))
	}
	args, lost := r.host.Stats().LogArgs()
	if err == nil && lost > lostBefore {
		err = fmt.Errorf("%d during the stop", lost-lostBefore)
	}
	if err != nil {
		args = append(args, "error", err)
		err = lossError{err}
	}
	if err != nil || lost > 0 {
		r.log.Error("stopped; spans were lost", args...)
		return err
	}
	r.log.Info("stopped", args...)
	return nil
}
