package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/semconv"
)

// Variables that ConfigFromEnv reads. An invalid value of a SERVE variable or of
// RAY_JOB_ID is an error, and so is any value of OTEL_CONFIG_FILE. An invalid value of an
// OTEL variable causes a warning and the default is used, as the OpenTelemetry
// specification requires.
const (
	// EnvSamplingRatio is the root ratio, 0 to 1. If it is unset,
	// OTEL_TRACES_SAMPLER decides.
	EnvSamplingRatio = "SERVE_TRACING_SAMPLING_RATIO"
	// EnvTrustInbound is a boolean, see Config.TrustInbound.
	EnvTrustInbound = "SERVE_TRACING_TRUST_INBOUND"
	// EnvSemconv is the mode of attribute names, see Config.Semconv.
	EnvSemconv = "SERVE_TRACING_SEMCONV"
	// EnvJobID is Ray's job id, 8 hexadecimal digits.
	EnvJobID = "RAY_JOB_ID"
	// EnvSDKDisabled disables tracing if it is "true", in any case.
	EnvSDKDisabled = "OTEL_SDK_DISABLED"
	// EnvTracesExporter disables tracing if it is "none". Other values are ignored,
	// because exporters are plugins.
	EnvTracesExporter = "OTEL_TRACES_EXPORTER"
	// EnvConfigFile is the variable with the path of a declarative configuration of an
	// OpenTelemetry SDK. It must be unset, because such a file would replace all variables of
	// OpenTelemetry, and this package does not read the file.
	EnvConfigFile = "OTEL_CONFIG_FILE"
	// EnvTracesSampler and EnvTracesSamplerArg name a sampler and its ratio.
	EnvTracesSampler    = "OTEL_TRACES_SAMPLER"
	EnvTracesSamplerArg = "OTEL_TRACES_SAMPLER_ARG"
	// EnvPropagators is a comma-separated list of formats, see Config.Propagators.
	EnvPropagators = "OTEL_PROPAGATORS"
	// EnvServiceName is the resource's service.name.
	EnvServiceName = "OTEL_SERVICE_NAME"
	// EnvResourceAttributes lists resource attributes, "key=value" comma
	// separated, values percent-encoded.
	EnvResourceAttributes = "OTEL_RESOURCE_ATTRIBUTES"
	// EnvSemconvOptIn is OpenTelemetry's variable for old and new attribute names, a list of
	// words. The word "http" sets Config.SemconvHTTP to SemconvStable, and "http/dup" sets it
	// to SemconvDup. The words "rpc" and "rpc/dup" do the same for Config.SemconvRPC. Other
	// words are ignored.
	EnvSemconvOptIn = "OTEL_SEMCONV_STABILITY_OPT_IN"
)

// The variables of the span limits, which are whole numbers, as in OpenTelemetry's
// specification.
const (
	EnvAttributeCountLimit      = "OTEL_ATTRIBUTE_COUNT_LIMIT"
	EnvAttributeLengthLimit     = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"
	EnvSpanAttributeCountLimit  = "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
	EnvSpanAttributeLengthLimit = "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
	EnvSpanEventCountLimit      = "OTEL_SPAN_EVENT_COUNT_LIMIT"
	EnvSpanLinkCountLimit       = "OTEL_SPAN_LINK_COUNT_LIMIT"
	EnvEventAttributeCountLimit = "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT"
	EnvLinkAttributeCountLimit  = "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"
)

// ConfigFromEnv reads the settings through getenv, which must behave like os.Getenv; an
// empty value counts as unset. The error joins all errors. The Config is always
// complete, with defaults for invalid values.
//
// Source:
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	r := envReader{getenv: getenv, cfg: DefaultConfig()}
	r.configFile()
	r.disabled()
	r.sampler()
	r.serve()
	r.propagators()
	r.limits()
	r.resource()
	return r.cfg, errors.Join(r.faults...)
}

type envReader struct {
	getenv func(string) string
	cfg    Config
	faults []error
}

func (r *envReader) get(key string) string { return strings.TrimSpace(r.getenv(key)) }

func (r *envReader) fault(key, value, want string) {
	r.faults = append(r.faults, fmt.Errorf("%s=%q: want %s", key, value, want))
}

func (r *envReader) warn(format string, args ...any) {
	r.cfg.Warnings = append(r.cfg.Warnings, fmt.Sprintf(format, args...))
}

func (r *envReader) configFile() {
	if v := r.get(EnvConfigFile); v != "" {
		r.fault(EnvConfigFile, v, "it unset, because declarative configuration is not read; set the variables of OpenTelemetry, or write a service file (SERVE_CONFIG)")
	}
}

func (r *envReader) disabled() {
	switch v := r.get(EnvSDKDisabled); strings.ToLower(v) {
	case "true":
		r.cfg.DisabledBy = EnvSDKDisabled + "=" + v
	case "", "false":
	default:
		r.warn("%s: %q is neither true nor false and means false", EnvSDKDisabled, v)
	}
	if v := r.get(EnvTracesExporter); strings.EqualFold(v, "none") && r.cfg.DisabledBy == "" {
		r.cfg.DisabledBy = EnvTracesExporter + "=" + v
	}
}

func (r *envReader) sampler() {
	name := r.get(EnvTracesSampler)
	if v := r.get(EnvSamplingRatio); v != "" {
		r.cfg.Ratio = 1
		if ratio, ok := parseRatio(v); ok {
			r.cfg.Ratio = ratio
		} else {
			r.fault(EnvSamplingRatio, v, "a number from 0 to 1")
		}
		if name != "" {
			r.warn("%s is ignored, because %s is set", EnvTracesSampler, EnvSamplingRatio)
		}
		return
	}
	if name == "" {
		return
	}
	s := Sampler(strings.ToLower(name))
	if !slices.Contains(samplers, s) {
		r.warn("%s: %q is not one of %s; every trace is sampled", EnvTracesSampler, name, joinSamplers())
		return
	}
	r.cfg.Sampler = s
	if s == TraceIDRatio || s == ParentBasedTraceIDRatio {
		r.samplerArg()
	}
}

func (r *envReader) samplerArg() {
	v := r.get(EnvTracesSamplerArg)
	if v == "" {
		return
	}
	ratio, ok := parseRatio(v)
	if !ok {
		r.warn("%s: %q is not a number from 0 to 1; every trace is sampled", EnvTracesSamplerArg, v)
		return
	}
	r.cfg.Ratio = ratio
}

func (r *envReader) serve() {
	if v := r.get(EnvTrustInbound); v != "" {
		trust, err := strconv.ParseBool(v)
		if err != nil {
			r.fault(EnvTrustInbound, v, "true or false")
		} else {
			r.cfg.TrustInbound = trust
		}
	}
	if v := r.get(EnvSemconv); v != "" {
		if slices.Contains(modes, v) {
			r.cfg.Semconv = v
		} else {
			r.fault(EnvSemconv, v, "ray, stable or dup")
		}
	}
	list := r.get(EnvSemconvOptIn)
	r.cfg.SemconvHTTP, r.cfg.SemconvRPC = optIn(list, "http"), optIn(list, "rpc")
	if v := strings.ToLower(r.get(EnvJobID)); v != "" {
		if isHex(v, jobIDBytes) {
			r.cfg.JobID = v
		} else {
			r.fault(EnvJobID, v, "8 hexadecimal digits")
		}
	}
}

func (r *envReader) propagators() {
	v := r.get(EnvPropagators)
	if v == "" {
		return
	}
	var names []string
	for name := range strings.SplitSeq(v, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(names, name) {
			continue
		}
		if _, err := autoprop.TextMapPropagator(name); err != nil {
			r.warn("%s: %q is unknown and is ignored", EnvPropagators, name)
			continue
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		r.cfg.Propagators = names
	}
}

func (r *envReader) limits() {
	l := &r.cfg.Limits
	r.limit(&l.AttributeCountLimit, EnvSpanAttributeCountLimit, EnvAttributeCountLimit)
	r.limit(&l.AttributeValueLengthLimit, EnvSpanAttributeLengthLimit, EnvAttributeLengthLimit)
	r.limit(&l.EventCountLimit, EnvSpanEventCountLimit)
	r.limit(&l.LinkCountLimit, EnvSpanLinkCountLimit)
	r.limit(&l.AttributePerEventCountLimit, EnvEventAttributeCountLimit, EnvAttributeCountLimit)
	r.limit(&l.AttributePerLinkCountLimit, EnvLinkAttributeCountLimit, EnvAttributeCountLimit)
}

// limit sets *dst to the value of the first variable in keys that has a valid value. If there
// is none, *dst stays unchanged.
func (r *envReader) limit(dst *int, keys ...string) {
	for _, key := range keys {
		v := r.get(key)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			r.warn("%s: %q is not a whole number and is ignored", key, v)
			continue
		}
		*dst = n
		return
	}
}

func (r *envReader) resource() {
	for pair := range strings.SplitSeq(r.get(EnvResourceAttributes), ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		text, err := url.PathUnescape(value)
		if !found || key == "" || err != nil {
			r.warn("%s: %q is not of the form key=value and is ignored", EnvResourceAttributes, pair)
			continue
		}
		r.cfg.Resource = append(r.cfg.Resource, attribute.String(key, text))
	}
	if v := r.get(EnvServiceName); v != "" {
		r.cfg.Resource = append(r.cfg.Resource, attribute.String(semconv.ServiceName, v))
	}
}

func parseRatio(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	// The comparison is false for NaN, too.
	return f, err == nil && f >= 0 && f <= 1
}
