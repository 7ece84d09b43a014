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

// EnvLogLevel is OpenTelemetry's variable for the level of the log. A value
// that is not known is a warning and means "info", as the specification asks.
const EnvLogLevel = "OTEL_LOG_LEVEL"

// EnvLogFormat is the variable for the form of the log: "text", the default, or
// "json".
const EnvLogFormat = "SERVE_LOG_FORMAT"

// LogFormat is the form of the log's lines.
type LogFormat string

// The forms, as package slog writes them.
const (
	LogText LogFormat = "text" // key=value
	LogJSON LogFormat = "json" // one object a line
)

// Config holds an operator's settings of a service. Get it from LoadConfig,
// LoadConfigFile or ConfigFromEnv: the zero Config does not validate, for that of
// tracing does not.
type Config struct {
	// Host are the settings of the plugins and the queue before them.
	Host host.Config
	// Tracing are those of sampling, propagation and the resource. Where it is
	// disabled, no plugin starts.
	Tracing tracing.Config
	// Serving are those of the HTTP proxy, the gRPC proxy and the apps.
	Serving serving.Config
	// Admin are those of the listener for operators, with the status page and
	// the metrics. Zero: there is none.
	Admin admin.Config
	// LogLevel is the least level that Run logs. Default and zero: info. It is
	// not read where Run is given a logger.
	LogLevel slog.Level
	// LogFormat is the form in which Run logs. Default and empty: LogText. It is
	// not read where Run is given a logger.
	LogFormat LogFormat
	// File is the service file that settings were read from, for the log. Empty:
	// there was none.
	File string
	// SpanFolder is where the console plugin writes span files, because the
	// service file switches tracing on and names no plugin; for the log. Empty:
	// it does not.
	SpanFolder string

	// readApps reads anew what the service file says of the apps. Nil: there was
	// no file.
	readApps func() ([]serving.AppConfig, error)
}

// ConfigFromEnv reads the settings of all parts by getenv, which answers as
// os.Getenv does, and opens no file: that is LoadConfigFile. The error joins
// every fault of every part.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	var cfg Config
	var errs [5]error
	cfg.Host, errs[0] = host.ConfigFromEnv(getenv)
	cfg.Tracing, errs[1] = tracing.ConfigFromEnv(getenv)
	cfg.Serving, errs[2] = serving.ConfigFromEnv(getenv)
	cfg.Admin, errs[3] = admin.ConfigFromEnv(getenv)
	cfg.LogFormat = LogFormat(getenv(EnvLogFormat))
	errs[4] = cfg.LogFormat.check()
	level, ok := parseLevel(getenv(EnvLogLevel))
	cfg.LogLevel = level
	if !ok {
		cfg.Tracing.Warnings = append(cfg.Tracing.Warnings,
			fmt.Sprintf("%s: %q is not one of none, error, warn, info, debug; info is logged", EnvLogLevel, getenv(EnvLogLevel)))
	}
	return cfg, errors.Join(append(errs[:], cfg.clash())...)
}

// Validate reports every fault of every part at once, joined, or nil.
func (c Config) Validate() error {
	return errors.Join(c.Host.Validate(), c.Tracing.Validate(), c.Serving.Validate(), c.Admin.Validate(), c.LogFormat.check(), c.clash())
}

func (f LogFormat) check() error {
	switch f {
	case "", LogText, LogJSON:
		return nil
	}
	return fmt.Errorf("%s=%q: want %s or %s", EnvLogFormat, string(f), LogText, LogJSON)
}

// clash says which listeners can not both be had: without it the second to
// listen would blame another process. Whether there is one for gRPC, only the
// apps say: its default clashes with nothing here.
func (c Config) clash() error {
	listeners := []struct{ addr, variable string }{
		{cmp.Or(c.Serving.HTTPAddr, serving.DefaultHTTPAddr), serving.EnvHTTPPort},
		{c.Serving.GRPC.Addr, serving.EnvGRPCPort},
		{c.Admin.Addr, admin.EnvPort},
	}
	var faults []error
	for i, later := range listeners {
		// An address that is none, which is told of its part, has no port here.
		host, port, _ := net.SplitHostPort(later.addr)
		if port == "" || port == "0" {
			continue
		}
		for _, earlier := range listeners[:i] {
			otherHost, otherPort, _ := net.SplitHostPort(earlier.addr)
			if otherPort == port && overlap(otherHost, host) {
				faults = append(faults, fmt.Errorf("%s=%q: that is %s too, and both listen at %s; give them different ports",
					later.variable, port, earlier.variable, host))
			}
		}
	}
	return errors.Join(faults...)
}

// overlap tells whether one of two hosts stands for the other, or for all. Names
// are not looked up.
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

// settled is c with what the parts must agree on.
func (c Config) settled() Config {
	if c.Tracing.DisabledBy != "" {
		c.Host.Plugins = ""
	}
	c.Host.Context.Job = c.Tracing.JobID
	c.Host.Context.ServiceName = c.Tracing.ServiceName()
	return c
}

// silent is above every level that is logged.
const silent = slog.Level(math.MaxInt)

// parseLevel reads the words of OTEL_LOG_LEVEL.
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
