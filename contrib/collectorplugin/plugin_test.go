package collectorplugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/contrib/collectorplugin"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// backEndConfig is the configuration of the exporter back_end, with the Collector's queue
// and retries, which are enabled by default.
type backEndConfig struct {
	Queue   configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	Retry   configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
	Timeout exporterhelper.TimeoutConfig                             `mapstructure:",squash"`
	Address string                                                   `mapstructure:"address"`
}

func (c *backEndConfig) Validate() error {
	if strings.Contains(c.Address, " ") {
		return fmt.Errorf("address %q has a space", c.Address)
	}
	return nil
}

// backEnd keeps the names of the spans that it has taken.
type backEnd struct {
	mu     sync.Mutex
	answer error
	calls  int
	names  []string
	called chan struct{} // one value for each call, if there is room
}

func (b *backEnd) take(_ context.Context, td ptrace.Traces) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	select {
	case b.called <- struct{}{}:
	default:
	}
	if b.answer == nil {
		b.names = append(b.names, names(td)...)
	}
	return b.answer
}

func (b *backEnd) answers(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = err
}

func (b *backEnd) taken() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.names, " ")
}

func names(td ptrace.Traces) (list []string) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				list = append(list, span.Name())
			}
		}
	}
	return list
}

// factory returns an exporter factory in front of the back end, made as the Collector's
// exporters are.
func (b *backEnd) factory() exporter.Factory {
	b.called = make(chan struct{}, 100)
	create := func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
		c := cfg.(*backEndConfig)
		return exporterhelper.NewTraces(ctx, set, cfg, b.take, exporterhelper.WithQueue(c.Queue),
			exporterhelper.WithRetry(c.Retry), exporterhelper.WithTimeout(c.Timeout))
	}
	return exporter.NewFactory(component.MustNewType("back_end"), func() component.Config {
		return &backEndConfig{
			Queue:   configoptional.Some(exporterhelper.NewDefaultQueueConfig()),
			Retry:   configretry.NewDefaultBackOffConfig(),
			Timeout: exporterhelper.NewDefaultTimeoutConfig(),
		}
	}, exporter.WithTraces(create, component.StabilityLevelStable))
}

func request(names ...string) *coltracepb.ExportTraceServiceRequest {
	scope := &tracepb.ScopeSpans{}
	for _, name := range names {
		scope.Spans = append(scope.Spans, &tracepb.Span{Name: name})
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{scope}}}}
}

func export(t *testing.T, p *plugintest.Plugin, names ...string) plugintest.Answer {
	t.Helper()
	got, err := p.Export(t.Context(), request(names...))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The queue and the retries of the exporter are off, so that each answer is the back end's.
func TestAnswerIsTheBackEnds(t *testing.T) {
	b := &backEnd{}
	p := plugintest.Run(t, collectorplugin.Spec(b.factory()))
	for _, c := range []struct {
		answer               error
		delivered, retryable bool
		after                time.Duration
	}{
		{nil, true, false, 0},
		{errors.New("connection refused"), false, true, 0},
		{status.Error(codes.InvalidArgument, "bad"), false, true, 0}, // the Collector would send again
		{consumererror.NewPermanent(errors.New("403")), false, false, 0},
		{fmt.Errorf("send: %w", exporterhelper.NewThrottleRetry(errors.New("429"), 3*time.Second)), false, true, 3 * time.Second},
		{exporterhelper.NewThrottleRetry(errors.New("503"), 0), false, true, 0},
	} {
		b.answers(c.answer)
		got := export(t, p, "one")
		if got.Delivered() != c.delivered || got.Retryable != c.retryable || got.RetryAfter != c.after {
			t.Errorf("the back end answers %v, and the plugin %v", c.answer, got)
		}
		if c.answer != nil && !strings.Contains(got.Message, c.answer.Error()) {
			t.Errorf("the answer %v lacks %q", got, c.answer)
		}
	}
	if b.calls != 6 || b.taken() != "one" {
		t.Errorf("%d calls, and the back end has %q: want 6 and one span", b.calls, b.taken())
	}
	if strings.Contains(p.Log(), "Rejecting") {
		t.Errorf("the log reports failures that the answer has:\n%s", p.Log())
	}
}

func TestConfigurationIsTheCollectors(t *testing.T) {
	for _, c := range []struct{ document, path, text string }{
		{"back_end: {addres: x}", "back_end", "addres"},
		{"back_end: {timeout: soon}", "back_end", "'timeout'"},
		{"back_end: {address: a b}", "back_end", `address "a b" has a space`},
		{"back_end: 5", "back_end", "mapping"},
		{"backend: {}", "backend", "back_end"},
	} {
		got := plugintest.Diagnose(t, collectorplugin.Spec((&backEnd{}).factory()), plugintest.WithConfig([]byte(c.document)))
		if len(got) != 1 || !got[0].Error || got[0].Path != c.path || !strings.Contains(got[0].Text, c.text) {
			t.Errorf("%s: got %+v, want one error at %s with %q", c.document, got, c.path, c.text)
		}
	}
}

// A setting of the queue does not enable it; only "enabled: true" does, with a warning.
func TestQueueIsEnabledByNameOnly(t *testing.T) {
	refusal := errors.New("not now")
	for document, delivered := range map[string]bool{
		"back_end: {sending_queue: {num_consumers: 2}}":                  false,
		"back_end: {sending_queue: {enabled: false}}":                    false,
		"back_end: {retry_on_failure: {initial_interval: 1s}}":           false,
		"back_end: {sending_queue: {enabled: true, num_consumers: 1}}":   true,
		"back_end: {timeout: 1s, sending_queue: , retry_on_failure: {}}": false,
	} {
		b := &backEnd{answer: refusal}
		p := plugintest.Run(t, collectorplugin.Spec(b.factory()), plugintest.WithConfig([]byte(document)))
		if got := export(t, p, "one"); got.Delivered() != delivered {
			t.Errorf("%s: the plugin answers %v", document, got)
		}
		if warned := len(p.Warnings()) == 1; warned != delivered {
			t.Errorf("%s: warnings %v", document, p.Warnings())
		}
	}
}

// dropping returns a processor that drops spans with a name.
func dropping(kind, name string) processor.Factory {
	create := func(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces, error) {
		return processorhelper.NewTraces(ctx, set, cfg, next, func(_ context.Context, td ptrace.Traces) (ptrace.Traces, error) {
			set.Logger.Info("processor called")
			td.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
				rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
					ss.Spans().RemoveIf(func(span ptrace.Span) bool { return span.Name() == name })
					return ss.Spans().Len() == 0
				})
				return rs.ScopeSpans().Len() == 0
			})
			if td.SpanCount() == 0 {
				return td, processorhelper.ErrSkipProcessingData
			}
			return td, nil
		}, processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}))
	}
	return processor.NewFactory(component.MustNewType(kind), func() component.Config { return &struct{}{} },
		processor.WithTraces(create, component.StabilityLevelStable))
}

func TestProcessorsFilter(t *testing.T) {
	b := &backEnd{}
	p := plugintest.Run(t, collectorplugin.Spec(b.factory(), dropping("first", "a"), dropping("second", "b")))
	got := export(t, p, "a", "b", "c", "a")
	if !got.Delivered() || got.Filtered["first"] != 2 || got.Filtered["second"] != 1 || b.taken() != "c" {
		t.Errorf("answer %v, and the back end has %q", got, b.taken())
	}
	if got := export(t, p, "a"); !got.Delivered() || got.Filtered["first"] != 1 || got.Filtered["second"] != 0 {
		t.Errorf("answer %v for a batch that the first processor drops", got)
	}
	b.answers(errors.New("not now"))
	if got := export(t, p, "a", "c"); !got.Retryable {
		t.Errorf("answer %v, want a retryable error", got)
	}
	if log := p.Log(); !strings.Contains(log, `"processor called"`) || !strings.Contains(log, `"component":"second"`) {
		t.Errorf("the log lacks the processors' messages:\n%s", log)
	}
}

// holding returns a processor that releases all spans when it is shut down, as
// tail_sampling does with undecided traces.
func holding() processor.Factory {
	create := func(ctx context.Context, _ processor.Settings, _ component.Config, next consumer.Traces) (processor.Traces, error) {
		return &holder{next: next, held: ptrace.NewTraces(), life: ctx}, nil
	}
	return processor.NewFactory(component.MustNewType("tail_sampling"), func() component.Config { return &struct{}{} },
		processor.WithTraces(create, component.StabilityLevelStable))
}

type holder struct {
	component.StartFunc
	next consumer.Traces
	held ptrace.Traces
	life context.Context //nolint:containedctx // as tail_sampling does
	ctx  context.Context //nolint:containedctx // as a processor that keeps it would
}

func (h *holder) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (h *holder) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	td.ResourceSpans().MoveAndAppendTo(h.held.ResourceSpans())
	h.ctx = context.WithoutCancel(ctx)
	return nil
}

func (h *holder) Shutdown(context.Context) error {
	if h.life.Err() != nil {
		return h.life.Err()
	}
	return h.next.ConsumeTraces(h.ctx, h.held)
}

func TestReleasedSpansAreSentAgain(t *testing.T) {
	b := &backEnd{answer: errors.New("not now")}
	p := plugintest.Run(t, collectorplugin.Spec(b.factory(), holding()))
	if got := export(t, p, "a", "b"); !got.Delivered() || got.Filtered != nil {
		t.Errorf("answer %v, want delivered", got)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Shutdown(t.Context()) }()
	<-b.called
	<-b.called // the second attempt
	b.answers(nil)
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if b.taken() != "a b" {
		t.Errorf("the back end has %q, want both spans", b.taken())
	}
}

func TestLostSpansAreReported(t *testing.T) {
	b := &backEnd{answer: consumererror.NewPermanent(errors.New("never"))}
	p := plugintest.Run(t, collectorplugin.Spec(b.factory(), holding()))
	export(t, p, "a", "b")
	err := p.Shutdown(t.Context())
	if err == nil || !strings.Contains(err.Error(), "2 spans that processors released later were not delivered") {
		t.Errorf("Shutdown: %v", err)
	}
	if !strings.Contains(p.Log(), `"released spans are lost"`) {
		t.Errorf("the log does not report the loss:\n%s", p.Log())
	}
}

// A component that needs an extension of the Collector does not start.
func TestStartFails(t *testing.T) {
	create := func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
		return exporterhelper.NewTraces(ctx, set, cfg, (&backEnd{}).take,
			exporterhelper.WithStart(func(_ context.Context, host component.Host) error {
				componentstatus.ReportStatus(host, componentstatus.NewFatalErrorEvent(errors.New("port in use")))
				if len(host.GetExtensions()) == 0 {
					return errors.New(`extension "oauth2client" not found`)
				}
				return nil
			}))
	}
	f := exporter.NewFactory(component.MustNewType("needy"), func() component.Config { return &struct{}{} },
		exporter.WithTraces(create, component.StabilityLevelStable))
	var log bytes.Buffer
	_, err := collectorplugin.Exporter(f)(t.Context(), pluginsdk.Setup{Log: slog.New(slog.NewTextHandler(&log, nil)), Warn: func(string, string) {}})
	if err == nil || !strings.Contains(log.String(), `status=StatusFatalError error="port in use"`) {
		t.Errorf("error %v, and the log is %s", err, &log)
	}
	got := plugintest.Diagnose(t, collectorplugin.Spec(f))
	if len(got) != 1 || !got[0].Error || !strings.Contains(got[0].Text, `start the exporter: extension "oauth2client" not found`) {
		t.Errorf("got %+v", got)
	}
}

// renaming returns a processor that prefixes the names of spans. A span "late" is released
// after its call.
func renaming(kind, prefix string) processor.Factory {
	create := func(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces, error) {
		return processorhelper.NewTraces(ctx, set, cfg, next, func(ctx context.Context, td ptrace.Traces) (ptrace.Traces, error) {
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, span := range ss.Spans().All() {
						switch span.Name() {
						case "bad":
							return td, consumererror.NewPermanent(errors.New("bad span"))
						case "late":
							_ = next.ConsumeTraces(context.Background(), td) // the error is in the log
							return ptrace.NewTraces(), processorhelper.ErrSkipProcessingData
						}
						span.SetName(prefix + span.Name())
					}
				}
			}
			return td, nil
		})
	}
	return processor.NewFactory(component.MustNewType(kind), func() component.Config { return &struct{}{} },
		processor.WithTraces(create, component.StabilityLevelStable))
}

func TestProcessorReplacesBatch(t *testing.T) {
	b := &backEnd{}
	spec := collectorplugin.ProcessorSpec("edit", dropping("drop", "a"), renaming("rename", "x-"))
	spec.Exporter = collectorplugin.Exporter(b.factory())
	p := plugintest.Run(t, spec)
	if got := export(t, p, "a", "b", "c"); !got.Delivered() || got.Filtered["drop"] != 1 || len(got.Filtered) != 1 || b.taken() != "x-b x-c" {
		t.Errorf("answer %v, and the back end has %q", got, b.taken())
	}
	if got := export(t, p, "a"); !got.Delivered() || got.Filtered["drop"] != 1 {
		t.Errorf("answer %v for a batch of which nothing is left", got)
	}
	if got := export(t, p, "bad"); got.Delivered() || got.Retryable || !strings.Contains(got.Message, "bad span") {
		t.Errorf("answer %v, want a final error", got)
	}
	if got := export(t, p, "late"); got.Filtered["rename"] != 1 || !strings.Contains(p.Log(), "the processor must not keep spans") {
		t.Errorf("answer %v, and the log is\n%s", got, p.Log())
	}
}

func TestHoldingProcessorIsRefused(t *testing.T) {
	got := plugintest.Diagnose(t, collectorplugin.ProcessorSpec("tail", holding()))
	if len(got) != 1 || !got[0].Error || !strings.Contains(got[0].Text, "the processor tail_sampling releases spans later") {
		t.Errorf("got %+v", got)
	}
}
