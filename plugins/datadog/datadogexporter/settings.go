package datadogexporter

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// EnvMode is the variable for the mode. "tracer", the default, sends through dd-trace-go
// to port 8126 or a Unix socket. "otlp" sends by OTLP/HTTP to port 4318. The setting
// exporter.mode in the configuration has the same values.
const EnvMode = "SERVE_DATADOG_MODE"

const (
	modeTracer = "tracer"
	modeOTLP   = "otlp"
	// modeAgent is the name of a mode of earlier versions, which encoded the requests to the
	// agent without dd-trace-go.
	modeAgent = "agent"
)

// Environment variables of Datadog that this package reads. dd-trace-go itself reads
// more.
const (
	envAgentURL       = "DD_TRACE_AGENT_URL"
	envAgentHost      = "DD_AGENT_HOST"
	envAgentPort      = "DD_TRACE_AGENT_PORT"
	envAgentTimeout   = "DD_TRACE_AGENT_TIMEOUT"
	envProtocol       = "DD_TRACE_AGENT_PROTOCOL_VERSION"
	envService        = "DD_SERVICE"
	envEnv            = "DD_ENV"
	envVersion        = "DD_VERSION"
	envTags           = "DD_TAGS"
	envTraceEnabled   = "DD_TRACE_ENABLED"
	envTracingEnabled = "DD_APM_TRACING_ENABLED"
	envServiceMapping = "DD_SERVICE_MAPPING"
	envStatistics     = "DD_TRACE_STATS_COMPUTATION_ENABLED"
	envTelemetry      = "DD_INSTRUMENTATION_TELEMETRY_ENABLED"
	envStartupLogs    = "DD_TRACE_STARTUP_LOGS"
)

// Texts of warnings about variables that have no effect in the mode "tracer".
const (
	adviceRetry  = "has no effect: the host sends a batch again until it is delivered or too old"
	adviceChunks = "has no effect: spans are sent with their batch"
	adviceOther  = "has no effect: it would apply to the plugin's process and not to the service"
)

var withoutEffect = []struct{ name, advice string }{
	{"DD_TRACE_SEND_RETRIES", adviceRetry}, {"DD_TRACE_RETRY_INTERVAL", adviceRetry},
	{"DD_TRACE_PARTIAL_FLUSH_ENABLED", adviceChunks}, {"DD_TRACE_PARTIAL_FLUSH_MIN_SPANS", adviceChunks},
	{"DD_APPSEC_ENABLED", adviceOther}, {"DD_PROFILING_ENABLED", adviceOther},
	{"DD_RUNTIME_METRICS_ENABLED", adviceOther}, {"DD_RUNTIME_METRICS_V2_ENABLED", adviceOther},
	{"DD_DATA_STREAMS_ENABLED", adviceOther}, {"DD_LLMOBS_ENABLED", adviceOther},
	{"DD_DYNAMIC_INSTRUMENTATION_ENABLED", adviceOther}, {"DD_CIVISIBILITY_ENABLED", adviceOther},
	{"DD_TRACE_HEADER_TAGS", adviceOther},
}

// EnvPatterns returns the variables that [New] reads, for pluginsdk.Spec.Env: the
// variable for the mode, Datadog's variables, and OpenTelemetry's variables for the mode
// "otlp". The caller owns the slice.
func EnvPatterns() []string {
	return append([]string{EnvMode, "DD_*"}, otlpexporter.EnvPatterns()...)
}

// document is the part of the plugin's configuration that this package decodes.
type document struct {
	Exporter struct {
		Mode string `yaml:"mode"`
		// OTLP holds all other keys. In the mode "otlp", package otlpexporter decodes them.
		OTLP map[string]any `yaml:",inline"`
	} `yaml:"exporter"`
}

// onlyMode returns an error for each key except mode, because the mode "tracer" has no
// other settings in the configuration.
func (d document) onlyMode() error {
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(d.Exporter.OTLP)) {
		faults = append(faults, &pluginsdk.ConfigError{Path: "exporter." + key, Err: fmt.Errorf(
			"is not known in the mode %s: want mode alone; the agent's address comes from DD_* variables", modeTracer)})
	}
	return errors.Join(faults...)
}

// readMode returns the mode. It comes from the variable EnvMode, or from fromDocument,
// the value in the configuration, if the variable is not set.
func readMode(s pluginsdk.Setup, fromDocument string) (string, error) {
	mode, from := s.Getenv(EnvMode), EnvMode
	if mode == "" {
		mode, from = fromDocument, "exporter.mode"
	}
	switch mode {
	case modeAgent:
		s.Warn(from, fmt.Sprintf("the mode %q was removed: the plugin uses %s, which sends to the same port of the agent", mode, modeTracer))
		return modeTracer, nil
	case "", modeTracer:
		return modeTracer, nil
	case modeOTLP:
		return modeOTLP, nil
	}
	return "", &pluginsdk.ConfigError{Path: from, Err: fmt.Errorf("%q: want %s or %s", mode, modeTracer, modeOTLP)}
}

type settings struct {
	agent        *agent
	serviceNames serviceNames
	env, version string // values of DD_ENV and DD_VERSION
	// agentStatistics reports that the agent computes the statistics of requests and errors,
	// and not dd-trace-go.
	agentStatistics bool
	telemetry       bool
	startupLogs     bool
	log             *slog.Logger
}

// statisticsBy returns the name of the program that computes statistics, for the log.
func (s settings) statisticsBy() string {
	if s.agentStatistics {
		return "agent"
	}
	return "dd-trace-go"
}

// readSettings reads Datadog's variables, and warns about variables without effect. It
// returns all errors joined.
func readSettings(s pluginsdk.Setup) (settings, error) {
	chosen := settings{
		serviceNames: serviceNames{cmp.Or(s.Getenv(envService), s.Context.ServiceName), readMapping(s.Getenv(envServiceMapping))},
		env:          s.Getenv(envEnv), version: s.Getenv(envVersion), log: s.Log,
		telemetry: truth(s, envTelemetry), startupLogs: truth(s, envStartupLogs),
	}
	// If the host keeps only a share of the traces, each span must count several times in
	// the statistics. The agent can do that, but dd-trace-go cannot.
	if on, err := strconv.ParseBool(s.Getenv(envStatistics)); err == nil && !on || s.Context.SamplingRatio > 0 && s.Context.SamplingRatio < 1 {
		chosen.agentStatistics = true
	}
	address, errAddress := agentAddress(s.Getenv, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
	timeout, errTimeout := readTimeout(s.Getenv(envAgentTimeout))
	var errProtocol error
	switch value := s.Getenv(envProtocol); value {
	case "", "0.4":
	case "1.0", "1":
		s.Warn(envProtocol, "has no effect: payloads use protocol 0.4, which every agent accepts")
	default:
		errProtocol = &pluginsdk.ConfigError{Path: envProtocol, Err: fmt.Errorf("%q: want 0.4", value)}
	}
	if err := errors.Join(errAddress, errTimeout, errProtocol, refuseOff(s)); err != nil {
		return settings{}, err
	}
	warnOfOthers(s)
	chosen.agent = newAgent(address, timeout)
	return chosen, nil
}

// readMapping parses new names for services, in the form OLD:NEW,OLD:NEW. It ignores
// parts without a colon.
func readMapping(value string) map[string]string {
	mapping := map[string]string{}
	for part := range strings.SplitSeq(value, ",") {
		if old, name, ok := strings.Cut(part, ":"); ok {
			mapping[strings.TrimSpace(old)] = strings.TrimSpace(name)
		}
	}
	return mapping
}

// truth reports whether the value of a variable means true, such as "1" or "true".
func truth(s pluginsdk.Setup, name string) bool {
	on, err := strconv.ParseBool(s.Getenv(name))
	return err == nil && on
}

// defaultTimeout is the default timeout of a request to the agent. It is the same as in
// dd-trace-go.
const defaultTimeout = 10 * time.Second

func readTimeout(value string) (time.Duration, error) {
	if value == "" {
		return defaultTimeout, nil
	}
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds < 1 || seconds > 3600 {
		return 0, &pluginsdk.ConfigError{Path: envAgentTimeout, Err: fmt.Errorf("%q: want whole seconds, 1 to 3600", value)}
	}
	return time.Duration(seconds) * time.Second, nil
}

// refuseOff returns an error for each variable that disables Datadog's tracer. A disabled
// tracer would send nothing, although the host would count all spans as delivered.
func refuseOff(s pluginsdk.Setup) error {
	var faults []error
	for _, name := range []string{envTraceEnabled, envTracingEnabled} {
		if on, err := strconv.ParseBool(s.Getenv(name)); err == nil && !on {
			faults = append(faults, &pluginsdk.ConfigError{Path: name, Err: fmt.Errorf(
				"%q disables traces, but the plugin is configured to send them: unset it, or remove the plugin", s.Getenv(name))})
		}
	}
	return errors.Join(faults...)
}

// warnOfOthers warns about each variable that is set but has no effect. It does not warn
// if the value is false, because the plugin behaves in this way anyway.
func warnOfOthers(s pluginsdk.Setup) {
	for _, variable := range withoutEffect {
		value := s.Getenv(variable.name)
		if on, err := strconv.ParseBool(value); value == "" || err == nil && !on {
			continue
		}
		s.Warn(variable.name, variable.advice)
	}
}

// tracerModeOnly lists variables that have an effect in the mode "tracer" but not in the
// mode "otlp". instead names the setting with the same effect in the mode "otlp".
var tracerModeOnly = []struct{ name, instead string }{
	{envAgentURL, "OTEL_EXPORTER_OTLP_ENDPOINT, or DD_AGENT_HOST"},
	{envAgentPort, "OTEL_EXPORTER_OTLP_ENDPOINT"},
	{envService, "OTEL_SERVICE_NAME"},
	{envEnv, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=…"},
	{envVersion, "OTEL_RESOURCE_ATTRIBUTES=service.version=…"},
	{envTags, "OTEL_RESOURCE_ATTRIBUTES=KEY=VALUE,…"},
	{"DD_TRACE_SAMPLE_RATE", adviceSampling}, {"DD_TRACE_SAMPLING_RULES", adviceSampling},
	{"DD_TRACE_RATE_LIMIT", adviceSampling}, {"DD_SPAN_SAMPLING_RULES", adviceSampling},
}

const adviceSampling = "SERVE_TRACING_SAMPLING_RATIO, or a sample processor"

// warnOfTracerMode warns about each variable that is set but that the mode "otlp"
// ignores. Without the warning, an operator could miss that spans lack their environment,
// or go to another address.
func warnOfTracerMode(s pluginsdk.Setup) {
	for _, variable := range tracerModeOnly {
		if s.Getenv(variable.name) != "" {
			s.Warn(variable.name, fmt.Sprintf("is not read with %s=%s: set %s", EnvMode, modeOTLP, variable.instead))
		}
	}
}
