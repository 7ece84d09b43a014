package host

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"
	"github.com/servetrace/servetrace/internal/settings"
)

// The variables that ConfigFromEnv reads. Durations are written as Go writes
// them ("200ms"), sizes in bytes or with a unit ("32MiB", "512KiB").
const (
	EnvPlugins    = pluginlist.EnvPlugins
	EnvProcessors = pluginlist.EnvProcessors
	// EnvExporterProcessors sets the processors of single exporters, in the form
	// EXPORTER:PROCESSOR,EXPORTER:PROCESSOR.
	EnvExporterProcessors = pluginlist.EnvExporterProcessors
	EnvProcessorFail      = pluginlist.EnvProcessorFail // the word open or closed, for all processors or as name=open
	EnvPluginDir          = pluginlist.EnvPluginDir     // folders separated by ":"
	EnvPluginConfig       = pluginlist.EnvPluginConfig  // name=file,name=file
	EnvQueueBytes         = pipeline.EnvQueueBytes
	EnvMaxSpanBytes       = pipeline.EnvMaxSpanBytes
	EnvExportTimeout      = supervise.EnvExportTimeout // OTEL_BSP_EXPORT_TIMEOUT, in ms, counts if this is not set
	EnvMaxAge             = supervise.EnvMaxAge
	EnvStartTimeout       = supervise.EnvStartTimeout
	EnvCrashDir           = supervise.EnvCrashDir
	EnvSpoolDir           = "SERVE_TRACING_SPOOL_DIR"
	EnvSpoolBytes         = pipeline.EnvSpoolBytes
	EnvBatchAge           = "SERVE_TRACING_BATCH_AGE"   // OTEL_BSP_SCHEDULE_DELAY, in ms, counts if this is not set
	EnvBatchSpans         = "SERVE_TRACING_BATCH_SPANS" // OTEL_BSP_MAX_EXPORT_BATCH_SIZE counts if this is not set
	EnvBatchBytes         = "SERVE_TRACING_BATCH_BYTES"
	EnvStopTimeout        = "SERVE_TRACING_STOP_TIMEOUT"

	EnvLockdown          = pluginlist.EnvLockdown          // true or false
	EnvPluginEnv         = pluginlist.EnvPluginEnv         // name:PATTERN for one plugin, *:PATTERN for all
	EnvPluginWritable    = "SERVE_TRACING_PLUGIN_WRITABLE" // refuse or allow
	EnvPluginMemoryLimit = pluginlist.EnvPluginMemoryLimit // SIZE for all plugins, name=SIZE for one
	EnvPluginMaxProcs    = pluginlist.EnvPluginMaxProcs    // N for all plugins, name=N for one
	EnvStartJitter       = "SERVE_TRACING_START_JITTER"
	EnvPluginWatch       = "SERVE_TRACING_PLUGIN_WATCH"
	EnvPython            = pluginlist.EnvPython // path or name of the Python interpreter
)

// OpenTelemetry's variables that this package reads.
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

// ConfigFromEnv reads the settings with getenv, which may be os.Getenv. It reports all
// faults at once. OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none leaves the list of
// plugins empty. No file is opened.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	r := reader{settings.NewReader(getenv)}
	configs, err := pluginlist.ParseConfigs(getenv(EnvPluginConfig))
	r.Add(err)
	cfg := Config{
		Plugins:       strings.TrimSpace(getenv(EnvPlugins)),
		Processors:    strings.TrimSpace(getenv(EnvProcessors)),
		PluginDirs:    filepath.SplitList(getenv(EnvPluginDir)),
		PluginConfigs: pluginConfigs(configs),
		QueueBytes:    r.Size(EnvQueueBytes),
		MaxSpanBytes:  int(r.Size(EnvMaxSpanBytes)),
		BatchAge:      r.duration(EnvBatchAge, envBSPScheduleDelay),
		BatchSpans:    r.count(EnvBatchSpans, envBSPMaxBatch),
		BatchBytes:    int(r.Size(EnvBatchBytes)),
		ExportTimeout: r.duration(EnvExportTimeout, envBSPExportTimeout),
		MaxAge:        r.Duration(EnvMaxAge),
		StartTimeout:  r.Duration(EnvStartTimeout),
		StopTimeout:   r.Duration(EnvStopTimeout),
		Context:       Context{ServiceName: getenv(envServiceName), Job: getenv(envRayJobID)},

		CrashDir:      getenv(EnvCrashDir),
		SpoolDir:      getenv(EnvSpoolDir),
		SpoolBytes:    r.Size(EnvSpoolBytes),
		Lockdown:      r.Bool(EnvLockdown),
		AllowWritable: r.Choice(EnvPluginWritable, "refuse", "allow"),
		StartJitter:   r.Duration(EnvStartJitter),
		Watch:         r.Duration(EnvPluginWatch),
		Python:        getenv(EnvPython),
	}
	cfg.ExporterProcessors, err = pluginlist.ParseExporterProcessors(getenv(EnvExporterProcessors))
	r.Add(err)
	cfg.ProcessorFailOpen, err = pluginlist.ParseByName(EnvProcessorFail, getenv(EnvProcessorFail), pluginlist.FailWords, pluginlist.ParseFail)
	r.Add(err)
	cfg.PluginEnv, err = pluginlist.ParseEnv(getenv(EnvPluginEnv))
	r.Add(err)
	cfg.PluginMemoryLimit, err = pluginlist.ParseByName(EnvPluginMemoryLimit, getenv(EnvPluginMemoryLimit), settings.SizeRange+", such as 64MiB", settings.ParseSize)
	r.Add(err)
	cfg.PluginMaxProcs, err = pluginlist.ParseByName(EnvPluginMaxProcs, getenv(EnvPluginMaxProcs), "a whole number from 1 to 65536", pluginlist.ParseProcs)
	r.Add(err)
	if strings.EqualFold(getenv(envSDKDisabled), "true") || strings.EqualFold(getenv(envTracesExporter), "none") {
		cfg.Plugins, cfg.Processors, cfg.ExporterProcessors = "", "", nil
	}
	if len(cfg.PluginDirs) == 0 {
		cfg.PluginDirs = nil
	}
	// A setting that could not be read is zero, which means its default, so Validate
	// reports no second error.
	if err := errors.Join(r.Err(), cfg.Validate()); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// reader reads variables of this package, and OpenTelemetry's variables for the same
// settings.
type reader struct{ settings.Reader }

// duration parses the variable name as a duration. If it is not set, duration parses
// the variable otelName, in milliseconds. Zero or a negative number in that variable
// means the default of this package.
func (r *reader) duration(name, otelName string) time.Duration {
	if r.Text(name) != "" {
		return r.Duration(name)
	}
	return time.Duration(r.otelNumber(otelName)) * time.Millisecond
}

// count parses the variable name as a whole number. If it is not set, count parses the
// variable otelName.
func (r *reader) count(name, otelName string) int {
	if r.Text(name) != "" {
		return r.Count(name)
	}
	return int(min(pipeline.MostBatchSpans, r.otelNumber(otelName))) // a larger number is valid for OpenTelemetry
}

func (r *reader) otelNumber(name string) int64 {
	if r.Text(name) == "" {
		return 0
	}
	n, err := strconv.ParseInt(r.Text(name), 10, 32)
	if err != nil {
		r.Fail(name, r.Text(name), "a whole number")
		return 0
	}
	return max(0, n)
}

func defaultPluginDirs() []string {
	dirs := []string{"/usr/local/lib/servetrace/plugins", "/usr/lib/servetrace/plugins"} // packages of a Linux distribution use the second folder
	if exe, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Join(filepath.Dir(exe), "plugins")}, dirs...)
	}
	return dirs
}

func environ() []string { return os.Environ() }

// nodeAddress returns the default of Context.Node.
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
