package datadogexporter

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// EnvMode is the variable that says how spans go to the agent: agent, which is
// the default, is its own protocol at port 8126 or a Unix socket; otlp is
// OTLP/HTTP at its port 4318. The document's exporter.mode is the same.
const EnvMode = "SERVE_DATADOG_MODE"

// Modes.
const (
	modeAgent = "agent"
	modeOTLP  = "otlp"
)

// Datadog's variables that this package reads.
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
	envReportHostname = "DD_TRACE_REPORT_HOSTNAME"
	envSourceHostname = "DD_TRACE_SOURCE_HOSTNAME"
	envTraceEnabled   = "DD_TRACE_ENABLED"
	envTracingEnabled = "DD_APM_TRACING_ENABLED"
)

// Variables that do to each span what they do in dd-trace-go.
const (
	envServiceMapping = "DD_SERVICE_MAPPING"
	envPeerDefaults   = "DD_TRACE_PEER_SERVICE_DEFAULTS_ENABLED"
	envPeerMapping    = "DD_TRACE_PEER_SERVICE_MAPPING"
	envSchema         = "DD_TRACE_SPAN_ATTRIBUTE_SCHEMA"
	envExternalEnv    = "DD_EXTERNAL_ENV"
)

// without effect, and what to do instead; the operator is told.
const (
	adviceSampling = "has no effect: the sampling decision falls in the host, once for each trace, and the agent is told to keep what arrives; set SERVE_TRACING_SAMPLING_RATIO, or a sample processor"
	adviceRetry    = "has no effect: the host sends a batch again until it is delivered or too old"
	adviceStats    = "has no effect: the agent computes statistics, for a batch that is sent again would count twice in the plugin"
	adviceChunks   = "has no effect: spans leave as their batch comes"
	adviceOther    = "has no effect: the plugin sends traces, and nothing else of what a Datadog tracer in the process itself can do"
)

var withoutEffect = []struct{ name, advice string }{
	{"DD_TRACE_SAMPLE_RATE", adviceSampling}, {"DD_TRACE_SAMPLING_RULES", adviceSampling},
	{"DD_TRACE_RATE_LIMIT", adviceSampling}, {"DD_SPAN_SAMPLING_RULES", adviceSampling},
	{"DD_TRACE_SEND_RETRIES", adviceRetry}, {"DD_TRACE_RETRY_INTERVAL", adviceRetry},
	{"DD_TRACE_STATS_COMPUTATION_ENABLED", adviceStats},
	{"DD_TRACE_PARTIAL_FLUSH_ENABLED", adviceChunks}, {"DD_TRACE_PARTIAL_FLUSH_MIN_SPANS", adviceChunks},
	{"DD_APPSEC_ENABLED", adviceOther}, {"DD_PROFILING_ENABLED", adviceOther},
	{"DD_RUNTIME_METRICS_ENABLED", adviceOther}, {"DD_RUNTIME_METRICS_V2_ENABLED", adviceOther},
	{"DD_DATA_STREAMS_ENABLED", adviceOther}, {"DD_LLMOBS_ENABLED", adviceOther},
	{"DD_DYNAMIC_INSTRUMENTATION_ENABLED", adviceOther}, {"DD_CIVISIBILITY_ENABLED", adviceOther},
	{"DD_TRACE_HEADER_TAGS", adviceOther}, {"DD_TRACE_DEBUG", "has no effect: what the plugin does is in the host's log and metrics"},
}

// EnvPatterns gives the variables that [New] reads, for pluginsdk.Spec.Env: the
// mode, Datadog's, and those of the mode otlp. The slice is the caller's, to
// append to.
func EnvPatterns() []string {
	return append([]string{EnvMode, "DD_*"}, otlpexporter.EnvPatterns()...)
}

// document is the plugin's, of which this package has one part.
type document struct {
	Exporter struct {
		Mode string `yaml:"mode"`
		// OTLP is for the mode otlp: otlpexporter knows it.
		OTLP map[string]any `yaml:",inline"`
	} `yaml:"exporter"`
}

// onlyMode refuses what the mode agent has no use for.
func (d document) onlyMode() error {
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(d.Exporter.OTLP)) {
		faults = append(faults, &pluginsdk.ConfigError{Path: "exporter." + key, Err: fmt.Errorf(
			"is not known in the mode %s: want mode alone; the agent's address comes from DD_* variables", modeAgent)})
	}
	return errors.Join(faults...)
}

// readMode takes the mode from its variable, or else from the document.
func readMode(s pluginsdk.Setup, fromDocument string) (string, error) {
	mode, from := s.Getenv(EnvMode), EnvMode
	if mode == "" {
		mode, from = fromDocument, "exporter.mode"
	}
	switch mode {
	case "", modeAgent:
		return modeAgent, nil
	case modeOTLP:
		return modeOTLP, nil
	}
	return "", &pluginsdk.ConfigError{Path: from, Err: fmt.Errorf("%q: want %s or %s", mode, modeAgent, modeOTLP)}
}

// settings are what the mode agent is told, checked.
type settings struct {
	agent *agent
	// v1 asks for protocol 1.0 where the agent has it.
	v1       bool
	mapping  mapping
	external string // DD_EXTERNAL_ENV
}

// mapping is what the operator says of how spans are shown.
type mapping struct {
	unified unified
	// services and peers are other names for services, and for those that are
	// called.
	services, peers map[string]string
	// peerDefaults has the called service found where no attribute names it.
	peerDefaults bool
}

// readSettings reads Datadog's variables, and warns of those that do nothing. It
// reports all faults at once.
func readSettings(s pluginsdk.Setup) (settings, error) {
	chosen := settings{mapping: readMapping(s), external: s.Getenv(envExternalEnv)}
	address, errAddress := agentAddress(s.Getenv, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
	timeout, errTimeout := readTimeout(s.Getenv(envAgentTimeout))
	var errProtocol error
	switch value := s.Getenv(envProtocol); value {
	case "", "0.4":
	case "1.0", "1":
		chosen.v1 = true
	default:
		errProtocol = &pluginsdk.ConfigError{Path: envProtocol, Err: fmt.Errorf("%q: want 0.4 or 1.0", value)}
	}
	if err := errors.Join(errAddress, errTimeout, errProtocol, refuseOff(s)); err != nil {
		return settings{}, err
	}
	warnOfOthers(s)
	chosen.agent = newAgent(address, timeout, chosen.external)
	return chosen, nil
}

// defaultTimeout is dd-trace-go's.
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

// refuseOff refuses what tells a Datadog tracer to send nothing: the host would
// believe that all is delivered.
func refuseOff(s pluginsdk.Setup) error {
	var faults []error
	for _, name := range []string{envTraceEnabled, envTracingEnabled} {
		if on, err := strconv.ParseBool(s.Getenv(name)); err == nil && !on {
			faults = append(faults, &pluginsdk.ConfigError{Path: name, Err: fmt.Errorf(
				"%q asks for no traces, and the plugin is there to send them: unset it, or leave the plugin out", s.Getenv(name))})
		}
	}
	return errors.Join(faults...)
}

// warnOfOthers tells the operator which variables do nothing. What is set to
// what the plugin does anyway is not worth a word.
func warnOfOthers(s pluginsdk.Setup) {
	for _, variable := range withoutEffect {
		value := s.Getenv(variable.name)
		if on, err := strconv.ParseBool(value); value == "" || err == nil && !on {
			continue
		}
		s.Warn(variable.name, variable.advice)
	}
}

// ofAgentMode are variables that the mode agent reads and the mode otlp does not,
// with what to set instead.
var ofAgentMode = []struct{ name, instead string }{
	{envAgentURL, "OTEL_EXPORTER_OTLP_ENDPOINT, or DD_AGENT_HOST"},
	{envAgentPort, "OTEL_EXPORTER_OTLP_ENDPOINT"},
	{envService, "OTEL_SERVICE_NAME"},
	{envEnv, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=…"},
	{envVersion, "OTEL_RESOURCE_ATTRIBUTES=service.version=…"},
	{envTags, "OTEL_RESOURCE_ATTRIBUTES=KEY=VALUE,…"},
}

// warnOfAgentMode tells the operator of the mode otlp which variables do nothing
// there: without a word, spans would have no env, or go elsewhere.
func warnOfAgentMode(s pluginsdk.Setup) {
	for _, variable := range ofAgentMode {
		if s.Getenv(variable.name) != "" {
			s.Warn(variable.name, fmt.Sprintf("is not read with %s=%s: set %s", EnvMode, modeOTLP, variable.instead))
		}
	}
}

func readMapping(s pluginsdk.Setup) mapping {
	m := mapping{unified: readUnified(s), services: map[string]string{}, peers: map[string]string{}}
	for _, t := range parseTags(s.Getenv(envServiceMapping)) {
		m.services[t.key] = t.value
	}
	for _, t := range parseTags(s.Getenv(envPeerMapping)) {
		m.peers[t.key] = t.value
	}
	on, err := strconv.ParseBool(s.Getenv(envPeerDefaults))
	m.peerDefaults = err == nil && on || s.Getenv(envSchema) == "v1"
	return m
}

// unified is Datadog's unified service tagging, and what else is for all spans,
// where a span and its resource do not say.
type unified struct {
	service, env, version string
	hostname              string // of DD_TRACE_SOURCE_HOSTNAME; wins
	noHostname            bool   // the agent's own counts
	tags                  []tag  // but for the service
}

type tag struct{ key, value string }

func readUnified(s pluginsdk.Setup) unified {
	u := unified{
		service: s.Getenv(envService), env: s.Getenv(envEnv), version: s.Getenv(envVersion),
		hostname: s.Getenv(envSourceHostname), tags: parseTags(s.Getenv(envTags)),
	}
	if on, err := strconv.ParseBool(s.Getenv(envReportHostname)); err == nil && !on {
		u.noHostname = u.hostname == ""
	}
	if u.service == "" {
		u.service = s.Context.ServiceName
	}
	for _, t := range u.tags {
		for key, field := range map[string]*string{"service": &u.service, "env": &u.env, "version": &u.version} {
			if t.key == key && *field == "" {
				*field = t.value
			}
		}
	}
	u.tags = slices.DeleteFunc(u.tags, func(t tag) bool { return t.key == "service" })
	return u
}

// parseTags reads DD_TAGS: key:value, separated by commas, or by spaces where
// there is no comma. What has no colon is a tag without a value, as in Datadog.
func parseTags(value string) []tag {
	split := func(r rune) bool { return r == ',' }
	if !strings.Contains(value, ",") {
		split = func(r rune) bool { return r == ' ' }
	}
	var tags []tag
	for _, part := range strings.FieldsFunc(value, split) {
		key, text, _ := strings.Cut(part, ":")
		if key = strings.TrimSpace(key); key != "" {
			tags = append(tags, tag{key, strings.TrimSpace(text)})
		}
	}
	return tags
}
