package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// run starts the plugin with an exporter that takes everything.
func run(t *testing.T, configuration string) *plugintest.Plugin {
	t.Helper()
	with := spec
	with.Exporter = func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
	}
	return plugintest.Run(t, with, plugintest.WithConfig([]byte(configuration)))
}

// request returns spans with attributes, of a resource with attributes.
func request(resource []string, spans ...[]string) *coltracepb.ExportTraceServiceRequest {
	scope := &tracepb.ScopeSpans{}
	for _, span := range spans {
		scope.Spans = append(scope.Spans, &tracepb.Span{Name: span[0], Attributes: attributes(span[1:])})
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: attributes(resource)}, ScopeSpans: []*tracepb.ScopeSpans{scope},
	}}}
}

func attributes(pairs []string) (list []*commonpb.KeyValue) {
	for i := 0; i < len(pairs); i += 2 {
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: pairs[i+1]}}
		list = append(list, &commonpb.KeyValue{Key: pairs[i], Value: value})
	}
	return list
}

// shown returns the spans that have reached the exporter, a line for each.
func shown(p *plugintest.Plugin) string {
	var text strings.Builder
	for _, rs := range p.Spans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				fmt.Fprintf(&text, "%s%s |%s\n", span.GetName(), pairs(span.GetAttributes()), pairs(rs.GetResource().GetAttributes()))
			}
		}
	}
	return text.String()
}

func pairs(list []*commonpb.KeyValue) string {
	var text strings.Builder
	for _, kv := range list {
		fmt.Fprintf(&text, " %s=%s", kv.GetKey(), kv.GetValue().GetStringValue())
	}
	return text.String()
}

// The statements are examples of the documentation of the processors transform and filter.
func TestStatements(t *testing.T) {
	resource := []string{"k8s.namespace.name", "shop", "foo", "a", "bar", "b", "host.name", "n1"}
	for _, c := range []struct {
		configuration string
		span          []string
		want          string // "" if the span is dropped
	}{
		{`transform: {trace_statements: ['set(span.attributes["test"], "pass") where span.attributes["test"] == nil']}`,
			[]string{"s"}, "s test=pass | k8s.namespace.name=shop foo=a bar=b host.name=n1\n"},
		{`transform: {trace_statements: ['set(span.attributes["test"], "pass") where span.attributes["test"] == nil']}`,
			[]string{"s", "test", "x"}, "s test=x | k8s.namespace.name=shop foo=a bar=b host.name=n1\n"},
		{`transform: {trace_statements: ['set(resource.attributes["namespace"], resource.attributes["k8s.namespace.name"])', 'delete_key(resource.attributes, "k8s.namespace.name")']}`,
			[]string{"s"}, "s | namespace=shop foo=a bar=b host.name=n1\n"},
		{`transform: {trace_statements: ['replace_all_patterns(resource.attributes, "key", "k8s\\.namespace\\.name", "namespace")']}`,
			[]string{"s"}, "s | namespace=shop foo=a bar=b host.name=n1\n"},
		{`transform: {trace_statements: ['set(resource.attributes["test"], Concat([resource.attributes["foo"], resource.attributes["bar"]], " "))']}`,
			[]string{"s"}, "s | k8s.namespace.name=shop foo=a bar=b host.name=n1 test=a b\n"},
		{`transform: {trace_statements: ['keep_keys(span.attributes, ["process.command_line"])', 'replace_pattern(span.attributes["process.command_line"], "password\\=[^\\s]*(\\s?)", "password=***")', 'truncate_all(span.attributes, 14)']}`,
			[]string{"s", "other", "x", "process.command_line", "p password=secret more"}, "s process.command_line=p password=*** | k8s.namespace.name=shop foo=a bar=b host.name=n1\n"},
		{`transform: {trace_statements: [{conditions: ['span.name == "s"'], statements: ['set(span.name, "t")']}]}`,
			[]string{"s"}, "t | k8s.namespace.name=shop foo=a bar=b host.name=n1\n"},
		{`filter: {error_mode: propagate, trace_conditions: ['span.attributes["container.name"] == "app_container_1"', 'resource.attributes["host.name"] == "localhost"', 'span.name == "app_3"']}`,
			[]string{"app_3"}, ""},
		{`filter: {error_mode: propagate, trace_conditions: ['span.attributes["container.name"] == "app_container_1"', 'resource.attributes["host.name"] == "localhost"', 'span.name == "app_3"']}`,
			[]string{"app_4"}, "app_4 | k8s.namespace.name=shop foo=a bar=b host.name=n1\n"},
	} {
		p := run(t, c.configuration)
		got, err := p.Export(t.Context(), request(resource, c.span))
		if err != nil || !got.Delivered() || (got.Filtered["filter"] == 1) != (c.want == "") {
			t.Errorf("%s: answer %v, %v", c.configuration, got, err)
		}
		if shown(p) != c.want {
			t.Errorf("%s: got %swant %s", c.configuration, shown(p), c.want)
		}
	}
}

// An error of a statement is logged, or hidden, or is the answer.
func TestErrorMode(t *testing.T) {
	for mode, c := range map[string]struct{ delivered, logged bool }{
		"ignore": {true, true}, "silent": {true, false}, "propagate": {false, true}, "": {true, true},
	} {
		configuration := `transform: {error_mode: ` + mode + `, trace_statements: ['set(span.attributes["n"], ParseJSON(span.name))', 'set(span.attributes["after"], "x")']}`
		if mode == "" {
			configuration = strings.Replace(configuration, "error_mode: ,", "", 1)
		}
		p := run(t, configuration)
		got, err := p.Export(t.Context(), request(nil, []string{"no json"}))
		if err != nil || got.Delivered() != c.delivered || got.Retryable == c.delivered {
			t.Errorf("%q: answer %v, %v", mode, got, err)
		}
		if logged := strings.Contains(p.Log(), "failed to execute statement"); logged != c.logged {
			t.Errorf("%q: logged %v:\n%s", mode, logged, p.Log())
		}
		if after := strings.Contains(shown(p), "after=x"); after != c.delivered {
			t.Errorf("%q: the spans are %q", mode, shown(p))
		}
	}
}

func TestWrongStatement(t *testing.T) {
	for _, c := range []struct{ configuration, path, text string }{
		{`transform: {trace_statements: ['sett(span.name, "x")']}`, "transform", `does not support the function "sett"`},
		{`transform: {error_mode: never}`, "transform", "never"},
		{`filter: {trace_conditions: ['span.nam == "x"']}`, "filter", `"nam"`},
		{`transforms: {}`, "transforms", "transform"},
	} {
		got := plugintest.Diagnose(t, spec, plugintest.WithConfig([]byte(c.configuration)))
		if len(got) != 1 || !got[0].Error || got[0].Path != c.path || !strings.Contains(got[0].Text, c.text) {
			t.Errorf("%s: got %+v, want one error at %s with %q", c.configuration, got, c.path, c.text)
		}
	}
}

const page = "../../docs/how-to/edit-spans-with-ottl.md"

// The configuration of the page does what the page says.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml [^\n]*\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no configuration", page)
	}
	p := run(t, string(block[1]))
	got, err := p.Export(t.Context(), request([]string{"host.name", "n1"},
		[]string{"login", "url.query", "user=1&token=abc&x=2"}, []string{"ping", "http.route", "/health"}))
	if err != nil || !got.Delivered() || got.Filtered["filter"] != 1 {
		t.Errorf("answer %v, %v", got, err)
	}
	if want := "login url.query=user=1&token=***&x=2 region=eu | host.name=n1\n"; shown(p) != want {
		t.Errorf("got %swant %s", shown(p), want)
	}
}
