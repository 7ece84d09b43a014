package plugintest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/testing/protocmp"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// sample returns a plugin that acts by the names of its spans.
func sample() pluginsdk.Spec {
	return pluginsdk.Spec{
		Name: "sample", Version: "1", Env: []string{"SAMPLE_*"},
		Processors: []pluginsdk.NewProcessor{newTenant},
		Exporter: func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
			if s.Getenv("SAMPLE_BROKEN") != "" {
				s.Warn("SAMPLE_OLD", "is not read any more")
				return nil, &pluginsdk.ConfigError{Path: "SAMPLE_BROKEN", Err: errors.New("is set: unset it")}
			}
			return pluginsdk.ExportFunc(func(ctx context.Context, b *pluginsdk.Batch) error {
				for span := range b.Spans() {
					if err := act(ctx, span.Name()); err != nil {
						return err
					}
					fmt.Fprintln(s.Stdout, span.Name())
				}
				return nil
			}), nil
		},
	}
}

func act(ctx context.Context, name string) error {
	switch name {
	case "permanent":
		return pluginsdk.Permanent(errors.New("bad token"))
	case "retryable":
		return pluginsdk.RetryAfter(errors.New("busy"), 3*time.Second)
	case "partial":
		return pluginsdk.Partial(1, "too old")
	case "slow":
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	case "stuck":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// newTenant returns a processor that sets an attribute and drops spans named "filtered".
func newTenant(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	tenant := attribute.String("tenant", s.Getenv("SAMPLE_TENANT"))
	return pluginsdk.EachSpan("tenant", func(span pluginsdk.Span) error {
		if span.Name() == "filtered" {
			span.Drop()
		}
		span.SetAttributes(tenant)
		return nil
	})(ctx, s)
}

func TestInProcessConforms(t *testing.T) {
	plugintest.Conformance(t, plugintest.InProcess(sample()), append(inputs(), plugintest.WithEnv("SAMPLE_TENANT=acme"), patient)...)
}

// TestInProcessAccounting runs a processor that drops and counts spans: the accounting
// balances.
func TestInProcessAccounting(t *testing.T) {
	spec := sample()
	spec.Processors = []pluginsdk.NewProcessor{pluginsdk.ProcessorFunc("first", func(_ context.Context, b *pluginsdk.Batch) error {
		for span := range b.Spans() {
			span.Drop()
			break
		}
		return nil
	})}
	report, err := plugintest.Check(t.Context(), plugintest.InProcess(spec), plugintest.WithRules("export.received", "export.filtered"))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		if result.Status != plugintest.Pass && !strings.HasPrefix(result.Rule, "configure") {
			t.Errorf("%s: %v: %s", result.Rule, result.Status, result.Detail)
		}
	}
}

// TestRunProcessorPlugin: the spans of a processor plugin are those that it returns.
func TestRunProcessorPlugin(t *testing.T) {
	spec := sample()
	spec.Exporter = nil
	p := plugintest.Run(t, spec, plugintest.WithEnv("SAMPLE_TENANT=acme"))
	answer, err := p.Export(t.Context(), named("one", "filtered"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"tenant": 1}, answer.Filtered); diff != "" {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}
	want := named("one").GetResourceSpans()
	want[0].ScopeSpans[0].Spans[0].Attributes = []*commonpb.KeyValue{{
		Key: "tenant", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "acme"}},
	}}
	if diff := cmp.Diff(want, p.Spans(), protocmp.Transform()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	plugintest.Conformance(t, plugintest.InProcess(spec), plugintest.WithEnv("SAMPLE_TENANT=acme"), patient)
}

func TestRun(t *testing.T) {
	p := plugintest.Run(t, sample(), plugintest.WithEnv("SAMPLE_TENANT=acme", "OTHER=secret"))
	for _, test := range []struct {
		names []string
		want  plugintest.Answer
	}{
		{[]string{"one", "two"}, plugintest.Answer{Code: "OK"}},
		{[]string{"one", "filtered"}, plugintest.Answer{Code: "OK", Filtered: map[string]int{"tenant": 1}}},
		{[]string{"partial", "two"}, plugintest.Answer{Code: "OK", Message: "too old", Rejected: 1}},
		{[]string{"permanent"}, plugintest.Answer{Code: "INVALID_ARGUMENT", Message: "export: bad token"}},
		{[]string{"retryable"}, plugintest.Answer{Code: "UNAVAILABLE", Message: "export: busy", Retryable: true, RetryAfter: 3 * time.Second}},
	} {
		got, err := p.Export(t.Context(), named(test.names...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.names, diff)
		}
		if got.Delivered() != (test.want.Code == "OK") {
			t.Errorf("%v: delivered is %v", test.names, got.Delivered())
		}
	}
	if want := "one\ntwo\none\n"; p.Stdout() != want {
		t.Errorf("standard output is %q, want %q", p.Stdout(), want)
	}
	if got := len(p.Spans()); got != 5 {
		t.Errorf("%d resources reached the exporter, want 5", got)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(p.Log(), "plugin stops") {
		t.Errorf("the log is %q", p.Log())
	}
	if _, err := p.Export(t.Context(), named("late")); err == nil {
		t.Error("a plugin that has ended accepts a batch")
	}
}

func TestDiagnose(t *testing.T) {
	got := plugintest.Diagnose(t, sample(), plugintest.WithEnv("SAMPLE_BROKEN=1"))
	want := []plugintest.Diagnostic{
		{Path: "SAMPLE_OLD", Text: "is not read any more"},
		{Error: true, Path: "SAMPLE_BROKEN", Text: "is set: unset it"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	if got := plugintest.Diagnose(t, sample()); got != nil {
		t.Errorf("diagnostics are %v, want none", got)
	}
}

func TestProcess(t *testing.T) {
	setup := pluginsdk.Setup{Getenv: func(string) string { return "acme" }}
	got := plugintest.Process(t, newTenant, setup, named("one", "filtered").GetResourceSpans())
	want := named("one").GetResourceSpans()
	want[0].GetScopeSpans()[0].GetSpans()[0].Attributes = []*commonpb.KeyValue{
		{Key: "tenant", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "acme"}}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if got := plugintest.Process(t, newTenant, pluginsdk.Setup{}, []*tracepb.ResourceSpans(nil)); len(got) != 0 {
		t.Errorf("no spans become %v", got)
	}
}

func TestNothingToTest(t *testing.T) {
	for _, test := range []struct {
		target plugintest.Target
		opts   []plugintest.Option
		want   string
	}{
		{target: plugintest.Binary(""), want: "no path and no Spec"},
		{target: plugintest.Binary("/no/such/plugin"), want: "there is no such file"},
		{target: plugintest.Binary(t.TempDir()), want: "this is a folder"},
		{target: plugintest.InProcess(sample()), opts: []plugintest.Option{plugintest.WithRules("no.such")}, want: "there is none of that name"},
	} {
		report, err := plugintest.Check(t.Context(), test.target, test.opts...)
		if report != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Check(%v) returns %v, %v; want %q", test.target, report, err, test.want)
		}
	}
}

// TestCalledOff cancels a run: the remaining rules are skipped.
func TestCalledOff(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	report, err := plugintest.Check(ctx, plugintest.InProcess(sample()))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		if result.Status != plugintest.Skip || !strings.Contains(result.Detail, "called off: enough") && !strings.Contains(result.Detail, "in this process") {
			t.Errorf("%s: %v %q", result.Rule, result.Status, result.Detail)
		}
	}
}

// TestProgress: each rule that runs is reported once, with the rules that have ended.
func TestProgress(t *testing.T) {
	var mu sync.Mutex
	begun := map[string]int{}
	spec := pluginsdk.Spec{Name: "p", Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
	}}
	report, err := plugintest.Check(t.Context(), plugintest.InProcess(spec), plugintest.WithRules("describe.*"),
		plugintest.WithProgress(func(rule string, done, total int) {
			mu.Lock()
			defer mu.Unlock()
			begun[rule]++
			if done >= total {
				t.Errorf("%s: %d of %d rules have ended", rule, done, total)
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		if begun[result.Rule] != 1 {
			t.Errorf("%s: reported %d times, want once", result.Rule, begun[result.Rule])
		}
	}
}
