package tracing

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func getenv(env map[string]string) func(string) string {
	return func(key string) string { return env[key] }
}

// The job id is drawn, so that it is set for comparing; its own test is
// TestIdentityFormats.
func TestConfigFromEnv(t *testing.T) {
	type env = map[string]string
	for _, tc := range []struct {
		name string
		env  env
		want func(*Config)
		err  string
	}{
		{"empty", env{}, func(*Config) {}, ""},
		{"ratio", env{"SERVE_TRACING_SAMPLING_RATIO": "0.25"}, func(c *Config) { c.Ratio = 0.25 }, ""},
		{"ratio 0", env{"SERVE_TRACING_SAMPLING_RATIO": "0"}, func(c *Config) { c.Ratio = 0 }, ""},
		{"ratio beyond 1", env{"SERVE_TRACING_SAMPLING_RATIO": "2"}, func(*Config) {},
			`SERVE_TRACING_SAMPLING_RATIO="2": want a number from 0 to 1`},
		{"ratio not a number", env{"SERVE_TRACING_SAMPLING_RATIO": "NaN"}, func(*Config) {},
			`SERVE_TRACING_SAMPLING_RATIO="NaN": want a number from 0 to 1`},
		{"ratio beats the sampler", env{"SERVE_TRACING_SAMPLING_RATIO": "0.5", "OTEL_TRACES_SAMPLER": "always_off"},
			func(c *Config) {
				c.Ratio = 0.5
				c.Warnings = []string{"OTEL_TRACES_SAMPLER is ignored, because SERVE_TRACING_SAMPLING_RATIO is set"}
			}, ""},
		{"sampler", env{"OTEL_TRACES_SAMPLER": "Always_Off"}, func(c *Config) { c.Sampler = AlwaysOff }, ""},
		{"sampler with ratio", env{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
			func(c *Config) { c.Sampler, c.Ratio = TraceIDRatio, 0.1 }, ""},
		{"sampler that takes no ratio", env{"OTEL_TRACES_SAMPLER": "parentbased_always_on", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
			func(c *Config) { c.Sampler = ParentBasedAlwaysOn }, ""},
		{"sampler unknown", env{"OTEL_TRACES_SAMPLER": "jaeger_remote"}, func(c *Config) {
			c.Warnings = []string{`OTEL_TRACES_SAMPLER: "jaeger_remote" is not one of always_on, always_off, traceidratio, ` +
				`parentbased_always_on, parentbased_always_off, parentbased_traceidratio; every trace is sampled`}
		}, ""},
		{"sampler's ratio wrong", env{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "-1"},
			func(c *Config) {
				c.Warnings = []string{`OTEL_TRACES_SAMPLER_ARG: "-1" is not a number from 0 to 1; every trace is sampled`}
			}, ""},
		{"disabled", env{"OTEL_SDK_DISABLED": "TRUE"}, func(c *Config) { c.DisabledBy = "OTEL_SDK_DISABLED=TRUE" }, ""},
		{"not disabled", env{"OTEL_SDK_DISABLED": "1"}, func(c *Config) {
			c.Warnings = []string{`OTEL_SDK_DISABLED: "1" is neither true nor false and means false`}
		}, ""},
		{"no exporter", env{"OTEL_TRACES_EXPORTER": "none"}, func(c *Config) { c.DisabledBy = "OTEL_TRACES_EXPORTER=none" }, ""},
		{"an exporter of the SDK", env{"OTEL_TRACES_EXPORTER": "otlp"}, func(*Config) {}, ""},
		{"declarative configuration", env{"OTEL_CONFIG_FILE": "/etc/otel.yaml"}, func(*Config) {},
			`OTEL_CONFIG_FILE="/etc/otel.yaml": want it unset, because declarative configuration is not read; set the variables of OpenTelemetry, or write a service file (SERVE_CONFIG)`},
		{"distrust", env{"SERVE_TRACING_TRUST_INBOUND": "false"}, func(c *Config) { c.TrustInbound = false }, ""},
		{"distrust wrong", env{"SERVE_TRACING_TRUST_INBOUND": "maybe"}, func(*Config) {},
			`SERVE_TRACING_TRUST_INBOUND="maybe": want true or false`},
		{"semconv ray", env{"SERVE_TRACING_SEMCONV": "ray"}, func(*Config) {}, ""},
		{"semconv stable", env{"SERVE_TRACING_SEMCONV": "stable"}, func(c *Config) { c.Semconv = "stable" }, ""},
		{"semconv dup", env{"SERVE_TRACING_SEMCONV": " dup "}, func(c *Config) { c.Semconv = "dup" }, ""},
		{"semconv wrong", env{"SERVE_TRACING_SEMCONV": "new"}, func(*Config) {},
			`SERVE_TRACING_SEMCONV="new": want ray, stable or dup`},
		{"semconv opt-in", env{"OTEL_SEMCONV_STABILITY_OPT_IN": "http"}, func(c *Config) { c.SemconvHTTP = "stable" }, ""},
		{"semconv opt-in to both", env{"OTEL_SEMCONV_STABILITY_OPT_IN": "rpc/dup,http/dup"}, func(c *Config) {
			c.SemconvHTTP, c.SemconvRPC = "dup", "dup"
		}, ""},
		{"dup wins", env{"OTEL_SEMCONV_STABILITY_OPT_IN": "http/dup, http ,rpc,rpc/dup"}, func(c *Config) {
			c.SemconvHTTP, c.SemconvRPC = "dup", "dup"
		}, ""},
		{"semconv opt-in of others", env{"OTEL_SEMCONV_STABILITY_OPT_IN": "database,gen_ai_latest_experimental,https,rpc/what"}, func(*Config) {}, ""},
		{"finer than the mode", env{"SERVE_TRACING_SEMCONV": "stable", "OTEL_SEMCONV_STABILITY_OPT_IN": "rpc/dup"}, func(c *Config) {
			c.Semconv, c.SemconvRPC = "stable", "dup"
		}, ""},
		{"job", env{"RAY_JOB_ID": "0A000000"}, func(c *Config) { c.JobID = "0a000000" }, ""},
		{"job wrong", env{"RAY_JOB_ID": "7"}, func(*Config) {}, `RAY_JOB_ID="7": want 8 hexadecimal digits`},
		{"propagators", env{"OTEL_PROPAGATORS": "b3, tracecontext,b3"}, func(c *Config) { c.Propagators = []string{"b3", "tracecontext"} }, ""},
		{"propagators unknown", env{"OTEL_PROPAGATORS": "what,b3"}, func(c *Config) {
			c.Propagators = []string{"b3"}
			c.Warnings = []string{`OTEL_PROPAGATORS: "what" is unknown and is ignored`}
		}, ""},
		{"propagators all unknown", env{"OTEL_PROPAGATORS": "what"}, func(c *Config) {
			c.Warnings = []string{`OTEL_PROPAGATORS: "what" is unknown and is ignored`}
		}, ""},
		{"propagators none", env{"OTEL_PROPAGATORS": "none"}, func(c *Config) { c.Propagators = []string{"none"} }, ""},
		{"limits", env{
			"OTEL_ATTRIBUTE_COUNT_LIMIT": "10", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "20",
			"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "30", "OTEL_SPAN_EVENT_COUNT_LIMIT": "40",
			"OTEL_SPAN_LINK_COUNT_LIMIT": "50", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "60",
		}, func(c *Config) {
			c.Limits.AttributeCountLimit = 20
			c.Limits.AttributeValueLengthLimit = 30
			c.Limits.EventCountLimit = 40
			c.Limits.LinkCountLimit = 50
			c.Limits.AttributePerEventCountLimit = 10
			c.Limits.AttributePerLinkCountLimit = 60
		}, ""},
		{"limit wrong", env{"OTEL_SPAN_LINK_COUNT_LIMIT": "many"}, func(c *Config) {
			c.Warnings = []string{`OTEL_SPAN_LINK_COUNT_LIMIT: "many" is not a whole number and is ignored`}
		}, ""},
		{"resource", env{"OTEL_RESOURCE_ATTRIBUTES": "service.name=a, team=x%20y ,bad,=1", "OTEL_SERVICE_NAME": "b"},
			func(c *Config) {
				c.Resource = []attribute.KeyValue{
					attribute.String("service.name", "a"), attribute.String("team", "x y"), attribute.String("service.name", "b"),
				}
				c.Warnings = []string{
					`OTEL_RESOURCE_ATTRIBUTES: "bad" is not of the form key=value and is ignored`,
					`OTEL_RESOURCE_ATTRIBUTES: "=1" is not of the form key=value and is ignored`,
				}
			}, ""},
		{"several faults at once", env{"SERVE_TRACING_SAMPLING_RATIO": "x", "RAY_JOB_ID": "x"}, func(*Config) {},
			"SERVE_TRACING_SAMPLING_RATIO=\"x\": want a number from 0 to 1\nRAY_JOB_ID=\"x\": want 8 hexadecimal digits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ConfigFromEnv(getenv(tc.env))
			if text := errorText(err); text != tc.err {
				t.Errorf("error %q, want %q", text, tc.err)
			}
			want := DefaultConfig()
			tc.want(&want)
			if tc.env["RAY_JOB_ID"] == "" || err != nil {
				want.JobID = got.JobID
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b attribute.KeyValue) bool { return a == b })); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("what ConfigFromEnv gives does not validate: %v", err)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestValidateReportsAllFaults(t *testing.T) {
	_, err := NewProvider(Config{Sampler: "coin", Ratio: -1, Semconv: "old", SemconvHTTP: "new", SemconvRPC: "Ray", Propagators: []string{"pigeon"}, JobID: "x"})
	want := strings.Join([]string{
		`tracing settings: sampler "coin" is not one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio`,
		`sampling ratio -1 is not a number from 0 to 1`,
		`semconv mode "old" is not ray, stable or dup`,
		`semconv mode of HTTP "new" is not ray, stable or dup`,
		`semconv mode of RPC "Ray" is not ray, stable or dup`,
		`propagators "pigeon": unknown propagator: pigeon (known: tracecontext, baggage, b3, b3multi, jaeger, xray, ottrace, none)`,
		`job id "x" is not 8 lower-case hexadecimal digits`,
	}, "\n")
	if got := errorText(err); got != want {
		t.Errorf("error:\n%s\nwant:\n%s", got, want)
	}
}

func TestResource(t *testing.T) {
	attrs := func(user ...attribute.KeyValue) map[string]any {
		m := map[string]any{}
		for _, kv := range newResource(user).Attributes() {
			m[string(kv.Key)] = kv.Value.AsInterface()
		}
		return m
	}
	got := attrs()
	if got["service.name"] != "unknown_service:tracing.test" {
		t.Errorf("service.name %q, want that of the test binary", got["service.name"])
	}
	for _, key := range []string{"telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version", "service.instance.id", "process.pid"} {
		if got[key] == nil {
			t.Errorf("no %s in %v", key, got)
		}
	}
	got = attrs(attribute.String("service.name", "a"), attribute.String("service.instance.id", "mine"), attribute.String("service.name", "b"))
	if got["service.name"] != "b" || got["service.instance.id"] != "mine" {
		t.Errorf("the user's attributes are not over those found out: %v", got)
	}
}

func TestServiceName(t *testing.T) {
	cfg := DefaultConfig()
	if got, want := cfg.ServiceName(), "unknown_service:tracing.test"; got != want {
		t.Errorf("without a name: %q, want %q", got, want)
	}
	cfg.Resource = []attribute.KeyValue{attribute.String("service.name", "a"), attribute.String("service.name", "b"), attribute.Int("n", 1)}
	if got := cfg.ServiceName(); got != "b" {
		t.Errorf("ServiceName() = %q, want the last one given", got)
	}
}

var errDiskFull = errors.New("disk full")

// failing is a processor that can neither flush nor shut down.
type failing struct{ sdktrace.SpanProcessor }

func (failing) ForceFlush(context.Context) error { return errDiskFull }
func (failing) Shutdown(context.Context) error   { return errDiskFull }

func TestProviderReportsProcessorErrors(t *testing.T) {
	inner := sdktrace.NewSimpleSpanProcessor(nil)
	p, err := NewProvider(DefaultConfig(), failing{inner})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ForceFlush(t.Context()); !errors.Is(err, errDiskFull) {
		t.Errorf("ForceFlush: %v, want the processor's error", err)
	}
	if err := p.Shutdown(t.Context()); !errors.Is(err, errDiskFull) {
		t.Errorf("Shutdown: %v, want the processor's error", err)
	}
	if err := p.Shutdown(t.Context()); !errors.Is(err, errDiskFull) {
		t.Errorf("second Shutdown: %v, want what the first returned", err)
	}
}

// counting counts its shutdowns.
type counting struct {
	sdktrace.SpanProcessor
	shutdowns *int
}

func (c counting) Shutdown(context.Context) error {
	*c.shutdowns++
	return nil
}

// The SDK leaves its processors alone if the context has ended; plugins would
// then stay. And it calls each once.
func TestShutdownReachesProcessorsWithoutTime(t *testing.T) {
	n := 0
	p, err := NewProvider(DefaultConfig(), counting{sdktrace.NewSimpleSpanProcessor(nil), &n})
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := p.Shutdown(over); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("the processor was shut down %d times, want once", n)
	}
	_, span := p.TracerProvider().Tracer("late").Start(t.Context(), "late")
	span.End() // reaches no processor, and does not panic
}
