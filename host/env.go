package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"
)

// The variables that ConfigFromEnv reads. Durations are written as Go writes
// them ("200ms"), sizes in bytes or with a unit ("32MiB", "512KiB").
const (
	EnvPlugins       = pluginlist.EnvPlugins
	EnvPluginDir     = pluginlist.EnvPluginDir    // folders separated by ":"
	EnvPluginConfig  = pluginlist.EnvPluginConfig // name=file,name=file
	EnvQueueBytes    = pipeline.EnvQueueBytes
	EnvMaxSpanBytes  = pipeline.EnvMaxSpanBytes
	EnvExportTimeout = supervise.EnvExportTimeout // else OTEL_BSP_EXPORT_TIMEOUT, ms
	EnvMaxAge        = supervise.EnvMaxAge
	EnvStartTimeout  = supervise.EnvStartTimeout
	EnvCrashDir      = supervise.EnvCrashDir
	EnvBatchAge      = "SERVE_TRACING_BATCH_AGE"   // else OTEL_BSP_SCHEDULE_DELAY, ms
	EnvBatchSpans    = "SERVE_TRACING_BATCH_SPANS" // else OTEL_BSP_MAX_EXPORT_BATCH_SIZE
	EnvBatchBytes    = "SERVE_TRACING_BATCH_BYTES"
	EnvStopTimeout   = "SERVE_TRACING_STOP_TIMEOUT"

	EnvLockdown          = pluginlist.EnvLockdown          // true or false
	EnvPluginEnv         = pluginlist.EnvPluginEnv         // name:PATTERN,*:PATTERN
	EnvPluginWritable    = "SERVE_TRACING_PLUGIN_WRITABLE" // refuse or allow
	EnvPluginMemoryLimit = pluginlist.EnvPluginMemoryLimit // SIZE,name=SIZE
	EnvPluginMaxProcs    = pluginlist.EnvPluginMaxProcs    // N,name=N
	EnvStartJitter       = "SERVE_TRACING_START_JITTER"
	EnvPluginWatch       = "SERVE_TRACING_PLUGIN_WATCH"
)

// OpenTelemetry's variables that take part.
const (
	envSDKDisabled      = "OTEL_SDK_DISABLED"
	envTracesExporter   = "OTEL_TRACES_EXPORTER"
	envServiceName      = "OTEL_SERVICE_NAME"
	envBSPScheduleDelay = "OTEL_BSP_SCHEDULE_DELAY"
	envBSPMaxBatch      = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
	envBSPExportTimeout = "OTEL_BSP_EXPORT_TIMEOUT"
	envRayJobID         = "RAY_JOB_ID"
)

// FromEnv returns a started Host with the settings of the environment: all that a
// program with an OpenTelemetry SDK needs. It returns at once; the plugins start in the
// background. If SERVE_TRACING_EXPORTER_PLUGIN is empty, the Host is not Enabled and
// costs nothing. A wrong setting is an error; a plugin that cannot start is not.
func FromEnv(opts ...Option) (*Host, error) {
	cfg, err := ConfigFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	h, err := New(cfg, opts...)
	if err != nil {
		return nil, err
	}
	return h, h.Start(context.Background())
}

// ConfigFromEnv reads the settings by getenv, which is os.Getenv or a test's own. It
// reports all faults at once. OTEL_SDK_DISABLED=true and OTEL_TRACES_EXPORTER=none
// leave the list of plugins empty. No file is opened.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	r := reader{getenv: getenv}
	configs, err := pluginlist.ParseConfigs(getenv(EnvPluginConfig))
	r.add(err)
	cfg := Config{
		Plugins:       strings.TrimSpace(getenv(EnvPlugins)),
		PluginDirs:    filepath.SplitList(getenv(EnvPluginDir)),
		PluginConfigs: pluginConfigs(configs),
		QueueBytes:    r.size(EnvQueueBytes),
		MaxSpanBytes:  int(r.size(EnvMaxSpanBytes)),
		BatchAge:      r.duration(EnvBatchAge, envBSPScheduleDelay),
		BatchSpans:    r.count(EnvBatchSpans, envBSPMaxBatch),
		BatchBytes:    int(r.size(EnvBatchBytes)),
		ExportTimeout: r.duration(EnvExportTimeout, envBSPExportTimeout),
		MaxAge:        r.duration(EnvMaxAge, ""),
		StartTimeout:  r.duration(EnvStartTimeout, ""),
		StopTimeout:   r.duration(EnvStopTimeout, ""),
		Context:       Context{ServiceName: getenv(envServiceName), Job: getenv(envRayJobID)},

		CrashDir:      getenv(EnvCrashDir),
		Lockdown:      r.truth(EnvLockdown),
		AllowWritable: r.choice(EnvPluginWritable, "refuse", "allow"),
		StartJitter:   r.duration(EnvStartJitter, ""),
		Watch:         r.duration(EnvPluginWatch, ""),
	}
	cfg.PluginEnv, err = pluginlist.ParseEnv(getenv(EnvPluginEnv))
	r.add(err)
	cfg.PluginMemoryLimit, err = pluginlist.ParseByName(EnvPluginMemoryLimit, getenv(EnvPluginMemoryLimit), "a number of bytes above zero, such as 64MiB", parseSize)
	r.add(err)
	cfg.PluginMaxProcs, err = pluginlist.ParseByName(EnvPluginMaxProcs, getenv(EnvPluginMaxProcs), "a whole number above zero", pluginlist.ParseProcs)
	r.add(err)
	if strings.EqualFold(getenv(envSDKDisabled), "true") || strings.EqualFold(getenv(envTracesExporter), "none") {
		cfg.Plugins = ""
	}
	if len(cfg.PluginDirs) == 0 {
		cfg.PluginDirs = nil
	}
	// A setting with a fault is zero here, and causes no second fault.
	if err := errors.Join(append(r.errs, cfg.Validate())...); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// reader reads variables and collects their faults.
type reader struct {
	getenv func(string) string
	errs   []error
}

func (r *reader) fail(name, seen, allowed string) {
	r.errs = append(r.errs, fmt.Errorf("%s=%q: want %s", name, seen, allowed))
}

func (r *reader) add(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// truth parses a variable as true or false. It returns false if the variable is not
// set.
func (r *reader) truth(name string) bool {
	text := r.getenv(name)
	if text == "" {
		return false
	}
	is, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		r.fail(name, text, "true or false")
	}
	return is
}

// choice parses a variable with one of two words, in any case. It returns true for the
// second word. It returns false for the first word, and if the variable is not set.
func (r *reader) choice(name, first, second string) bool {
	switch text := r.getenv(name); {
	case strings.EqualFold(text, second):
		return true
	case text != "" && !strings.EqualFold(text, first):
		r.fail(name, text, first+" or "+second)
	}
	return false
}

// size parses a variable as a number of bytes. It returns zero if the variable is not
// set.
func (r *reader) size(name string) int64 {
	text := r.getenv(name)
	if text == "" {
		return 0
	}
	n, err := parseSize(text)
	if err != nil {
		r.fail(name, text, "a number of bytes above zero, such as 1048576, 512KiB or 32MiB")
	}
	return n
}

// duration parses a variable as a duration. If it is not set, duration parses
// OpenTelemetry's variable in milliseconds. Zero or a negative number there means our
// default.
func (r *reader) duration(name, otelName string) time.Duration {
	if text := r.getenv(name); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			r.fail(name, text, "a duration above zero, such as 200ms or 10s")
			return 0
		}
		return d
	}
	return time.Duration(r.otelNumber(otelName)) * time.Millisecond
}

// count parses a variable as a whole number. If it is not set, count parses
// OpenTelemetry's variable.
func (r *reader) count(name, otelName string) int {
	if text := r.getenv(name); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			r.fail(name, text, "a whole number above zero")
			return 0
		}
		return n
	}
	return int(min(pipeline.MostBatchSpans, r.otelNumber(otelName))) // OpenTelemetry has no upper bound
}

func (r *reader) otelNumber(name string) int64 {
	if name == "" || r.getenv(name) == "" {
		return 0
	}
	n, err := strconv.ParseInt(r.getenv(name), 10, 32)
	if err != nil {
		r.fail(name, r.getenv(name), "a whole number")
		return 0
	}
	return max(0, n)
}

// parseSize parses "1048576", "512KiB", "32MiB" or "1GiB".
func parseSize(text string) (int64, error) {
	number, shift := text, 0
	for suffix, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, shift = rest, bits
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil {
		return 0, err
	}
	if n <= 0 || n > (1<<40)>>shift {
		return 0, strconv.ErrRange
	}
	return n << shift, nil
}

// defaultPluginDirs returns the default folders for bare names.
func defaultPluginDirs() []string {
	dirs := []string{"/usr/local/lib/servetrace/plugins"}
	if exe, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Join(filepath.Dir(exe), "plugins")}, dirs...)
	}
	return dirs
}

// environ returns the environment of the process.
func environ() []string { return os.Environ() }

// nodeAddress returns the address that Ray would use for this machine.
func nodeAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, addr := range addrs {
			ipNet, ok := addr.(*net.IPNet)
			if ok && ipNet.IP.To4() != nil && ipNet.IP.IsGlobalUnicast() {
				return ipNet.IP.String()
			}
		}
	}
	return "127.0.0.1"
}
