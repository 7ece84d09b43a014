package servetrace

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// EnvLogLevel is OpenTelemetry's variable for the level of the log. An unknown value
// causes a warning and means "info", as the specification requires.
const EnvLogLevel = "OTEL_LOG_LEVEL"

// EnvLogFormat is the variable for the log's format: "text" (the default) or "json".
const EnvLogFormat = "SERVE_LOG_FORMAT"

// LogFormat is the format of the log's lines.
type LogFormat string

// The formats, as defined by package slog.
const (
	LogText LogFormat = "text" // key=value
	LogJSON LogFormat = "json" // one object per line
)

// Config holds the operator's settings of a service. LoadConfig, LoadConfigFile and
// ConfigFromEnv return a valid Config. The zero Config is invalid, because the zero
// tracing.Config is invalid.
type Config struct {
	// Host holds the settings of the plugins and of the queue before the plugins.
	Host host.Config
	// Tracing holds the settings of sampling, propagation and the resource. If tracing
	// is disabled, no plugin starts.
	Tracing tracing.Config
	// Serving holds the settings of the HTTP proxy, the gRPC proxy and the apps.
	Serving serving.Config
	// Admin holds the settings of the admin listener, with the status page and the
	// metrics. If it is zero, there is no listener.
	Admin admin.Config
	// LogLevel is the lowest level that Run logs. Default and zero: info. Ignored if
	// Run is given a logger.
	LogLevel slog.Level
	// LogFormat is the format of the log. Default and empty: LogText. Ignored if Run is
	// given a logger.
	LogFormat LogFormat
	// File is the path of the service file that was read. Empty if no file was read.
	File string
	// SpanFolder is the default folder for span files of the console plugin, which Run
	// creates. It is set if the service file enables tracing without a plugin, and the
	// output is not set elsewhere.
	SpanFolder string

	// readApps reads the apps' settings from the service file again, after SIGHUP. Nil if no
	// file was read.
	readApps func() ([]serving.AppConfig, error)
}

// ConfigFromEnv reads all settings through getenv, which must behave like os.Getenv. Unlike
// LoadConfigFile, it reads no service file. The error joins the errors of all settings.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	var cfg Config
	var errs [5]error
	cfg.Host, errs[0] = host.ConfigFromEnv(getenv)
	cfg.Tracing, errs[1] = tracing.ConfigFromEnv(getenv)
	cfg.Serving, errs[2] = serving.ConfigFromEnv(getenv)
	cfg.Admin, errs[3] = admin.ConfigFromEnv(getenv)
	cfg.LogFormat = LogFormat(strings.TrimSpace(getenv(EnvLogFormat)))
	errs[4] = cfg.LogFormat.check()
	level, ok := parseLevel(getenv(EnvLogLevel))
	cfg.LogLevel = level
	if !ok {
		cfg.Tracing.Warnings = append(cfg.Tracing.Warnings,
			fmt.Sprintf("%s: %q is not one of none, error, warn, info, debug; info is logged", EnvLogLevel, getenv(EnvLogLevel)))
	}
	return cfg, errors.Join(append(errs[:], cfg.checkListeners())...)
}

// Validate returns the errors of all settings, joined, or nil.
func (c Config) Validate() error {
	return errors.Join(c.Host.Validate(), c.Tracing.Validate(), c.Serving.Validate(), c.Admin.Validate(), c.LogFormat.check(), c.checkListeners())
}

func (f LogFormat) check() error {
	switch f {
	case "", LogText, LogJSON:
		return nil
	}
	return fmt.Errorf("%s=%q: want %s or %s", EnvLogFormat, string(f), LogText, LogJSON)
}

// checkListeners returns an error if two listeners have the same address. Without this check,
// the error of the second listener would blame another process. The default address of gRPC
// is not checked, because the apps decide whether there is a gRPC listener.
func (c Config) checkListeners() error {
	listeners := []struct{ addr, variable string }{
		{cmp.Or(c.Serving.HTTPAddr, serving.DefaultHTTPAddr), serving.EnvHTTPPort},
		{c.Serving.GRPC.Addr, serving.EnvGRPCPort},
		{c.Serving.Calls.Addr, serving.EnvCallAddr},
		{c.Admin.Addr, admin.EnvPort},
	}
	var faults []error
	for i, later := range listeners {
		// If the address is invalid, port is empty. Validate reports it elsewhere.
		host, port, _ := net.SplitHostPort(later.addr)
		if port == "" || port == "0" {
			continue
		}
		for _, earlier := range listeners[:i] {
			otherHost, otherPort, _ := net.SplitHostPort(earlier.addr)
			if otherPort == port && overlap(otherHost, host) {
				faults = append(faults, fmt.Errorf("%s=%q: %s is the same port, and both listen at %s; set different ports",
					later.variable, port, earlier.variable, host))
			}
		}
	}
	return errors.Join(faults...)
}

// overlap reports whether listeners at the hosts a and b would use the same address of the
// machine. It resolves no name except localhost.
func overlap(a, b string) bool {
	local := func(host string) string {
		if host == "localhost" {
			return admin.DefaultHost
		}
		return host
	}
	all := func(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
	return local(a) == local(b) || all(a) || all(b)
}

// withSharedSettings returns c in which the host's settings follow the settings of tracing:
// if tracing is disabled, the host gets no plugins.
func (c Config) withSharedSettings() Config {
	if c.Tracing.DisabledBy != "" {
		c.Host.Plugins = ""
	}
	c.Host.Context.Job = c.Tracing.JobID
	c.Host.Context.ServiceName = c.Tracing.ServiceName()
	return c
}

// silent is a level at which the log writes no lines.
const silent = slog.Level(math.MaxInt)

// parseLevel parses a value of OTEL_LOG_LEVEL. If the value is unknown, ok is false and the
// level is info.
func parseLevel(text string) (level slog.Level, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "info":
		return slog.LevelInfo, true
	case "none":
		return silent, true
	case "error", "fatal":
		return slog.LevelError, true
	case "warn", "warning":
		return slog.LevelWarn, true
	case "debug", "verbose", "trace", "all":
		return slog.LevelDebug, true
	}
	return slog.LevelInfo, false
}
