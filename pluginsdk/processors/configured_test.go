package processors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// setupOf returns the Setup of an operator's configuration and of SERVE_RAY_CONTEXT.
func setupOf(document, rayContext string) pluginsdk.Setup {
	return pluginsdk.Setup{
		Config: []byte(document),
		Getenv: func(name string) string {
			if name == EnvRayContext {
				return rayContext
			}
			return ""
		},
	}
}

func TestConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		document, env string
		want          []string
	}{
		"nothing":            {"", "", nil},
		"off":                {"", "off", nil},
		"on":                 {"", "on", []string{"raycontext"}},
		"in order":           {"processors: [{sample: {ratio: 1}}, {raycontext: {}}, {redact: {}}]", "", []string{"sample", "raycontext", "redact"}},
		"before all":         {"processors: [{redact: {}}]", "on", []string{"raycontext", "redact"}},
		"placed by document": {"processors: [{redact: {}}, {raycontext: {}}]", "on", []string{"redact", "raycontext"}},
		"two of a kind":      {"processors: [{redact: {}}, {redact: {name: mails}}]", "", []string{"redact", "mails"}},
		"JSON":               {`{"processors": [{"attributes": {"actions": [{"key": "k", "action": "delete"}]}}]}`, "", []string{"attributes"}},
		"all of a document": {`
processors:
  - raycontext: {name: ray}
  - attributes:
      salt: s
      actions:
        - {key: team, action: upsert, value: search}
        - {key: list, action: insert, value: [1, 2], on: resource}
        - {key: http.*, action: rename, to: web.*}
        - {key: user.id, action: hash}
        - {key: "*.body", action: delete, on: event}
  - redact:
      blocked_keys: ["*ssn*"]
      blocked_values: ['EMP-\d{6}']
      ignored_keys: ["gen_ai.*"]
      allowed_values: ['.*@example\.com']
      without: [card, keys]
  - filter:
      drop:
        - {name: "GET /health*", kind: server, status: ok, attributes: {http.status_code: 200, a: "x*", b: true, c: , d: 1.5}}
        - {resource: {service.name: noisy}}
  - sample: {ratio: 0.1, keep: {errors: true, slower_than: 1s}}
`, "", []string{"ray", "attributes", "redact", "filter", "sample"}},
	} {
		made, err := Configured(t.Context(), setupOf(c.document, c.env))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, part := range made.(pluginsdk.Chain) {
			got = append(got, part.(pluginsdk.Named).Name())
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestConfiguredRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		document, env string
		want          string
	}{
		"variable": {"", "yes", `SERVE_RAY_CONTEXT: "yes": want on or off`},
		"no processor": {"processors: [{}]", "", `processors[0]: names no processor: want one of attributes, filter, raycontext, redact, ` +
			`sample, with {} for its defaults`},
		"two in one": {"processors: [{redact: {}, raycontext: {}}]", "", `processors[0]: names 2 processors: give each a dash of its own, ` +
			`for their order matters`},
		"same name": {"processors: [{redact: {}}, {redact: {}}]", "", `processors[1].redact.name: "redact" is the name of processors[0] ` +
			`too: give one of them another, because the delivery accounting needs different names`},
		"odd name":     {`processors: [{redact: {name: "a b"}}]`, "", `processors[0].redact.name: "a b": want at most 64 letters, digits and signs of ASCII, without spaces, commas and "="`},
		"no ratio":     {"processors: [{sample: {}}]", "", `processors[0].sample.ratio: is missing: give the share of traces to keep, 0 to 1`},
		"ratio":        {"processors: [{sample: {ratio: 2}}]", "", `processors[0].sample.ratio: 2 is not a number from 0 to 1`},
		"slower":       {"processors: [{sample: {ratio: 1, keep: {slower_than: -1s}}}]", "", `processors[0].sample.keep.slower_than: -1s is negative: give a duration such as 1s, or 0 for no such rule`},
		"empty filter": {"processors: [{filter: {}}]", "", `processors[0].filter.drop: is empty: say which spans to drop, such as {name: "GET /health*"}`},
		"empty match": {"processors: [{filter: {drop: [{}]}}]", "", `processors[0].filter.drop[0]: has no condition and would drop every span: ` +
			`give name, kind, status, attributes or resource`},
		"words": {"processors: [{filter: {drop: [{kind: x, status: y, attributes: {a: [1]}}]}}]", "",
			`processors[0].filter.drop[0].kind: "x": want one of client, consumer, internal, producer, server, unspecified` + "\n" +
				`processors[0].filter.drop[0].status: "y": want one of error, ok, unset` + "\n" +
				`processors[0].filter.drop[0].attributes.a: [1]: want a text, a number, true or false, or nothing for any value`},
		"no action": {"processors: [{attributes: {}}]", "", `processors[0].attributes.actions: is empty: give at least one, such as ` +
			`{key: team, action: upsert, value: search}`},
		"actions": {`processors: [{attributes: {actions: [{}, {key: a, action: set}, {key: "a*", action: upsert, value: 1}, {key: a, action: insert},
			{key: a, action: update, value: 1, from_attribute: b}, {key: a, action: delete, value: 1, to: x}, {key: a, action: rename},
			{key: a, action: rename, to: "b*"}, {key: "a*b*", action: rename, to: "c*"}, {key: a, action: hash, on: scope}, {key: a, action: upsert, value: {b: c}}]}}]`, "",
			strings.Join([]string{
				`processors[0].attributes.actions[0].key: is empty: give the attribute that the action is about`,
				`processors[0].attributes.actions[0].action: is empty: want one of delete, hash, insert, rename, update, upsert`,
				`processors[0].attributes.actions[1].action: "set": want one of delete, hash, insert, rename, update, upsert`,
				`processors[0].attributes.actions[2].key: "a*" has a wildcard: upsert sets one key (a backslash before the wildcard takes it as it is)`,
				`processors[0].attributes.actions[3].value: is missing: insert needs value or from_attribute`,
				`processors[0].attributes.actions[4]: value and from_attribute are both set; action update takes one of them`,
				`processors[0].attributes.actions[5].to: "x": only rename has a new name`,
				`processors[0].attributes.actions[5]: delete sets no value: leave value and from_attribute out`,
				`processors[0].attributes.actions[6].to: is empty: rename needs the new key`,
				`processors[0].attributes.actions[7].to: "b*" has a wildcard and key "a" has none for it to stand for`,
				`processors[0].attributes.actions[8].to: "c*": to rename by a glob, give one "*" in key (here "a*b*") and one in to`,
				`processors[0].attributes.actions[9].on: "scope": want one of event, link, resource, span`,
				`processors[0].attributes.actions[10].value: map[b:c]: want a text, a number, true or false, or a list of one of these`,
			}, "\n")},
		"redact": {`processors: [{redact: {blocked_keys: [""], ignored_keys: [""], blocked_values: ["", "(", "a*"], allowed_values: ["("],
			without: [mail, aws]}}]`, "",
			strings.Join([]string{
				`processors[0].redact.blocked_keys[0]: is empty: give a key, or a glob such as "*ssn*"`,
				`processors[0].redact.ignored_keys[0]: is empty: give a key, or a glob such as "*ssn*"`,
				`processors[0].redact.without[0]: "mail" is no built-in rule: want some of assignment, bearer, card, email, keys, private_key, token, userinfo`,
				`processors[0].redact.without[1]: "aws" is no longer a rule: access key ids are part of "token"; secret keys are redacted by their key only`,
				`processors[0].redact.blocked_values[0]: is empty: give a regular expression`,
				"processors[0].redact.blocked_values[1]: \"(\" is no regular expression of RE2: error parsing regexp: missing closing ): `(`",
				`processors[0].redact.blocked_values[2]: "a*" matches the empty text: make it match at least one character`,
				"processors[0].redact.allowed_values[0]: \"(\" is no regular expression of RE2: error parsing regexp: missing closing ): `(`",
			}, "\n")},
		"keys of earlier versions": {"processors: [{redact: {max_value_bytes: 5, max_depth: 5, keep_unknown_fields: true}}, {redact: {name: 5, x: 1}}]", "",
			`processors[0].redact.max_value_bytes: was removed: texts of every length are searched; SERVE_TRACING_MAX_SPAN_BYTES limits the size of a span. Remove it` + "\n" +
				`processors[0].redact.max_depth: was removed: arrays and maps are searched at every depth. Remove it` + "\n" +
				`processors[0].redact.keep_unknown_fields: was removed: redact always keeps fields that OTLP does not define. Remove it` + "\n" +
				`processors[1].redact.x: line 1: unknown key "x", want one of name, blocked_keys, blocked_values, ignored_keys, allowed_values, without`},
		"all at once": {"processors: [{sample: {}}, {filter: {}}]", "maybe",
			`SERVE_RAY_CONTEXT: "maybe": want on or off` + "\n" +
				`processors[0].sample.ratio: is missing: give the share of traces to keep, 0 to 1` + "\n" +
				`processors[1].filter.drop: is empty: say which spans to drop, such as {name: "GET /health*"}`},
	} {
		_, err := Configured(t.Context(), setupOf(c.document, c.env))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if diff := gocmp.Diff(c.want, err.Error()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, document := range []string{"processors: [{redakt: {}}]", "processors: [{redact: {mails: true}}]", "processor: []", "processors: 3"} {
		_, err := Configured(t.Context(), setupOf(document, ""))
		var fault *pluginsdk.ConfigError
		if !errors.As(err, &fault) {
			t.Errorf("%s: %v, want a ConfigError", document, err)
		}
	}
}

// TestGoConfigs: errors in Go code have the same names as errors in a document.
func TestGoConfigs(t *testing.T) {
	for want, build := range map[string]pluginsdk.NewProcessor{
		"sample.ratio: -1 is not a number from 0 to 1":                                                        Sample(SampleConfig{Ratio: -1}),
		`filter.drop: is empty: say which spans to drop, such as {name: "GET /health*"}`:                      Filter(FilterConfig{}),
		"attributes.actions: is empty: give at least one, such as {key: team, action: upsert, value: search}": Attributes(AttributesConfig{}),
		`redact.blocked_keys[0]: is empty: give a key, or a glob such as "*ssn*"`:                             Redact(RedactConfig{BlockedKeys: []string{""}}),
	} {
		_, err := build(t.Context(), pluginsdk.Setup{})
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	for _, valid := range []interface{ Validate() error }{
		SampleConfig{}, RedactConfig{}, RayContextConfig{}, FilterConfig{Drop: []SpanMatch{{Name: "x"}}},
		AttributesConfig{Actions: []AttributeAction{{Key: "k", Action: "upsert", Value: []string{"a"}}}},
	} {
		if err := valid.Validate(); err != nil {
			t.Errorf("%T: %v", valid, err)
		}
	}
}

// TestInAPlugin: configured processors in a whole plugin, and their delivery accounting.
func TestInAPlugin(t *testing.T) {
	spec := pluginsdk.Spec{
		Name: "test", Env: []string{EnvRayContext}, Processors: []pluginsdk.NewProcessor{Configured},
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
		},
	}
	document := `
processors:
  - filter: {drop: [{name: "GET /health*"}]}
  - filter: {name: quiet, drop: [{attributes: {noise: true}}]}
  - redact: {}
  - sample: {ratio: 0.5, keep: {errors: true}}
`
	p := plugintest.Run(t, spec, plugintest.WithConfig([]byte(document)), plugintest.WithEnv(EnvRayContext+"=on"),
		plugintest.WithContext(pluginsdk.StaticContext{Job: "0a000000"}))
	span := func(name string, last byte, kvs ...*commonpb.KeyValue) *tracepb.Span {
		return &tracepb.Span{Name: name, TraceId: append(make([]byte, 9), last, 0, 0, 0, 0, 0, 1), SpanId: []byte("01234567"), Attributes: kvs}
	}
	noise := &commonpb.KeyValue{Key: "noise", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}}
	failed := span("POST /failed", 0x00)
	failed.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	answer, err := p.Export(t.Context(), &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
			span("GET /health", 0xff), span("GET /healthz", 0xff), span("chatter", 0xff, noise),
			span("kept bob@example.com", 0x80), span("not kept", 0x7f), failed,
		}}},
	}}})
	if err != nil || !answer.Delivered() {
		t.Fatalf("answer %v, error %v", answer, err)
	}
	want := map[string]int{"filter": 2, "quiet": 1, "sample": 1}
	if diff := gocmp.Diff(want, answer.Filtered); diff != "" {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}
	var left []string
	for _, s := range spansOf(&tracepb.TracesData{ResourceSpans: p.Spans()}) {
		job, _ := find(s.Attributes, "ray.job_id")
		left = append(left, fmt.Sprintf("%s, job %t", s.Name, job.GetStringValue() != ""))
	}
	if diff := gocmp.Diff([]string{"kept [REDACTED], job true", "POST /failed, job true"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	found := plugintest.Diagnose(t, spec, plugintest.WithEnv(EnvRayContext+"=1"))
	if len(found) != 1 || found[0].Path != EnvRayContext || found[0].Text != `"1": want on or off` {
		t.Errorf("diagnostics %v", found)
	}
}

// TestConfiguredWithRay: the identity is on by default, at the place that Configured
// gives it.
func TestConfiguredWithRay(t *testing.T) {
	for _, c := range []struct {
		document, env string
		want          string
	}{
		{"", "", "raycontext"},
		{"", "on", "raycontext"},
		{"", "off", ""},
		{"processors: [{redact: {}}]", "", "raycontext redact"},
		{"processors: [{redact: {}}, {raycontext: {}}]", "", "redact raycontext"},
		{"processors: [{redact: {}}]", "off", "redact"},
	} {
		made, err := ConfiguredWithRay(t.Context(), setupOf(c.document, c.env))
		if err != nil {
			t.Errorf("%q, %q: %v", c.document, c.env, err)
			continue
		}
		var got []string
		for _, part := range made.(pluginsdk.Chain) {
			got = append(got, part.(pluginsdk.Named).Name())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q, %q: processors are %q, want %q", c.document, c.env, got, c.want)
		}
	}
}
