package pluginsdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// processorSpec is testSpec without its exporter, and with more processors.
var processorSpec = pluginsdk.Spec{
	Name: "test-processor", Version: "1.2.3", Env: testSpec.Env, Limits: testSpec.Limits,
	Processors: append(slices.Clone(testSpec.Processors),
		func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) {
			return pluginsdk.Chain{&editor{name: "edit"}, &editor{name: "edit"}}, nil
		}),
}

// editor does the action in the name of each span. A second editor sees the name that the
// first has set.
type editor struct{ name string }

func (e *editor) Name() string { return e.name }

func (*editor) Process(ctx context.Context, b *pluginsdk.Batch) error {
	for span := range b.Spans() {
		switch span.Name() {
		case "edit":
			span.SetName("second: drop")
			span.SetAttributes(attribute.String("team", "search"))
		case "second: drop":
			span.Drop()
		case "random":
			editAtRandom(b)
			return nil
		case "whole":
			return b.Replace(slices.Concat([]byte{0x98, 0x3f, 0x01}, b.Bytes())) // with an unknown field
		case "whole: more":
			return b.Replace(slices.Concat(b.Bytes(), b.Bytes()))
		case "edit: for ever":
			return pluginsdk.Permanent(errors.New("policy forbids"))
		case "edit: for a while":
			return pluginsdk.RetryAfter(errors.New("policy is loading"), 1500*time.Millisecond)
		case "until told":
			<-ctx.Done()
			return context.Cause(ctx)
		}
	}
	return nil
}

func (*editor) Shutdown(context.Context) error { return errors.New("editor cannot stop") }

// editAtRandom makes edits of every kind. The id of the batch decides them.
func editAtRandom(b *pluginsdk.Batch) {
	seed := fnv.New64()
	_, _ = seed.Write([]byte(b.ID()))
	random := rand.New(rand.NewPCG(seed.Sum64(), 0))
	keys := []attribute.Key{"user", "n", "service.name", "new", attribute.Key(strings.Repeat("long", 40))}
	for span := range b.Spans() {
		for range random.IntN(4) {
			text := strings.Repeat("x", []int{0, 1, 120, 130, 17_000}[random.IntN(5)])
			kv := keys[random.IntN(len(keys))].String(text)
			switch random.IntN(12) {
			case 0, 1, 2:
				span.SetAttributes(kv)
			case 3:
				span.DeleteAttributes(kv.Key)
			case 4:
				span.SetName(text)
			case 5:
				span.SetStatus(codes.Error, text)
			case 6:
				span.Drop()
			case 7:
				span.AddEvent(text, time.Unix(1, 2), kv)
			case 8:
				span.AddLink(trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}), Attributes: []attribute.KeyValue{kv}})
			case 9:
				span.Resource().SetAttributes(kv)
			case 10:
				span.Scope().SetAttributes(kv)
			case 11:
				for event := range span.Events() {
					event.SetName(text)
					event.SetAttributes(kv)
				}
			}
		}
	}
}

// outcome is the result of a batch, seen by the host.
type outcome struct {
	Code, Message string
	Final         bool
	After         time.Duration
	Filtered      []string
	// Exported is the batch as the exporter gets it; empty if no span is left.
	Exported string
}

func outcomeOf(err error, trailer metadata.MD, exported []byte) outcome {
	if err == nil {
		if n, fault := otlpwire.CountSpans(exported); n == 0 && fault == nil {
			exported = nil
		}
		return outcome{Code: "OK", Filtered: trailer.Get(wire.MetaFiltered), Exported: string(exported)}
	}
	got := wire.FromStatus(err)
	return outcome{Code: got.Code, Message: got.Error(), Final: got.Final, After: got.After, Filtered: trailer.Get(wire.MetaFiltered)}
}

// oneProcess is a plugin with the processors of processorSpec and an exporter.
type oneProcess struct {
	*running
	exported []byte
}

func startOneProcess(t *testing.T) *oneProcess {
	p := &oneProcess{}
	spec := processorSpec
	spec.Exporter = func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
			p.exported = slices.Clone(b.Bytes())
			return nil
		}), nil
	}
	p.running = startRun(t, spec)
	p.configure(t, nil)
	return p
}

func (p *oneProcess) do(ctx context.Context, encoded []byte) outcome {
	p.exported = nil
	var trailer metadata.MD
	err := p.conn.Invoke(ctx, wire.ExportMethod, rawMessage(encoded), new(rawMessage), grpc.ForceCodecV2(rawCodec{}), grpc.Trailer(&trailer))
	return outcomeOf(err, trailer, p.exported)
}

// processBefore does what a host does with a processor plugin. It also returns the answer.
func processBefore(ctx context.Context, t *testing.T, r *running, encoded []byte) (outcome, *pluginv1.ProcessResponse) {
	t.Helper()
	var trailer metadata.MD
	answer, err := pluginv1.NewProcessorClient(r.conn).Process(ctx, &pluginv1.ProcessRequest{Batch: encoded}, grpc.Trailer(&trailer))
	exported := encoded
	switch answer.GetResult().(type) {
	case *pluginv1.ProcessResponse_Patch:
		patched, fault := otlpwire.ApplyPatch(nil, encoded, encode(t, answer.GetPatch()))
		if fault != nil {
			t.Fatal(fault)
		}
		exported = patched
	case *pluginv1.ProcessResponse_Batch:
		exported = answer.GetBatch()
	}
	return outcomeOf(err, trailer, exported), answer
}

// forEachProcessor runs a test body over processorSpec in this process and over the test
// binary as a plugin process.
func forEachProcessor(t *testing.T, body func(t *testing.T, r *running)) {
	t.Run("Run", func(t *testing.T) { body(t, startRun(t, processorSpec)) })
	t.Run("Main", func(t *testing.T) { body(t, startMain(t, envMode+"=processor")) })
}

// TestProcessAnswersAsExportWould: processors before all exporters give the host the same
// bytes, counts and errors as in one process with the exporter.
func TestProcessAnswersAsExportWould(t *testing.T) {
	one := startOneProcess(t)
	forEachProcessor(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		for _, c := range []struct {
			spans []string
			// result is the form of the answer: "", "patch" or "batch".
			result string
			want   outcome // without Exported
		}{
			{[]string{"fine"}, "", outcome{Code: "OK"}},
			{nil, "", outcome{Code: "OK"}},
			{[]string{"health 1", "a", "health 2", "process: drop"}, "patch", outcome{Code: "OK", Filtered: []string{"health=2", "processor-2=1"}}},
			{[]string{"health 1"}, "patch", outcome{Code: "OK", Filtered: []string{"health=1"}}},
			{[]string{"edit", "a"}, "patch", outcome{Code: "OK", Filtered: []string{"edit-2=1"}}},
			{[]string{"whole", "health"}, "batch", outcome{Code: "OK", Filtered: []string{"health=1"}}},
			{[]string{"whole: more"}, "", outcome{
				Code: "INVALID_ARGUMENT", Final: true,
				Message: `processor "edit": replace batch: 2 spans in place of 1: a processor may drop spans and must not add any`,
			}},
			{[]string{"process: fail"}, "", outcome{Code: "UNAVAILABLE", Message: `processor "processor-2": cannot process`}},
			{[]string{"process: panic"}, "", outcome{Code: "INTERNAL", Final: true, Message: `processor "processor-2": panic: processor's panic`}},
			{[]string{"process: partial"}, "", outcome{
				Code: "INVALID_ARGUMENT", Final: true,
				Message: `processor "processor-2": 1 spans rejected: not a processor's word: only an exporter can deliver in part`,
			}},
			{[]string{"edit: for ever"}, "", outcome{Code: "INVALID_ARGUMENT", Final: true, Message: `processor "edit": policy forbids`}},
			{[]string{"health", "edit: for a while"}, "", outcome{Code: "UNAVAILABLE", After: 1500 * time.Millisecond, Message: `processor "edit": policy is loading`}},
		} {
			encoded := encode(t, named(c.spans...))
			got, answer := processBefore(t.Context(), t, r, encoded)
			if diff := cmp.Diff(one.do(t.Context(), encoded), got); diff != "" {
				t.Errorf("%q before the exporter (-in one process +before):\n%s", c.spans, diff)
			}
			c.want.Exported = got.Exported
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.spans, diff)
			}
			if form := formOf(answer); form != c.result {
				t.Errorf("%q: the answer is %q, want %q", c.spans, form, c.result)
			}
		}
		for _, malformed := range []string{"\x0a\x7fno", "\x0a\x05\x12\x03\x12\x01\xff"} {
			if got, _ := processBefore(t.Context(), t, r, []byte(malformed)); got.Code != "INVALID_ARGUMENT" || !got.Final || !strings.Contains(got.Message, "malformed batch") {
				t.Errorf("malformed batch: %+v", got)
			}
		}
	})
}

func formOf(answer *pluginv1.ProcessResponse) string {
	switch answer.GetResult().(type) {
	case *pluginv1.ProcessResponse_Patch:
		return "patch"
	case *pluginv1.ProcessResponse_Batch:
		return "batch"
	}
	return ""
}

// TestProcessGivesTheSameBytes: 10,000 spans with random edits of every kind.
func TestProcessGivesTheSameBytes(t *testing.T) {
	one := startOneProcess(t)
	forEachProcessor(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		random := rand.New(rand.NewPCG(3, 4))
		forms := map[string]int{}
		for spans := 0; spans < 10_000; {
			request := &coltracepb.ExportTraceServiceRequest{}
			for range 1 + random.IntN(40) {
				request.ResourceSpans = append(request.ResourceSpans, richRequest().GetResourceSpans()...)
			}
			request.ResourceSpans[0].ScopeSpans[0].Spans[0].Name = "random"
			spans += 2 * len(request.ResourceSpans)
			id := fmt.Sprintf("host-%d", spans)
			ctx := metadata.AppendToOutgoingContext(t.Context(), wire.MetaBatchID, id)
			encoded := encode(t, request)
			got, answer := processBefore(ctx, t, r, encoded)
			if want := one.do(ctx, encoded); !cmp.Equal(want, got) {
				t.Fatalf("batch %s: %d bytes %v in one process, %d bytes %v before the exporter",
					id, len(want.Exported), want.Filtered, len(got.Exported), got.Filtered)
			}
			forms[formOf(answer)]++
		}
		if forms["patch"] < 100 || forms["batch"] > 0 {
			t.Errorf("forms of the answers: %v, want patches", forms)
		}
	})
}

func TestProcessorPluginDescribes(t *testing.T) {
	forEachProcessor(t, func(t *testing.T, r *running) {
		got, err := r.lifecycle.Describe(t.Context(), &pluginv1.DescribeRequest{})
		if err != nil || got.GetKind() != pluginv1.Kind_KIND_PROCESSOR || got.GetName() != "test-processor" {
			t.Errorf("Describe: %v, %v", got, err)
		}
	})
	for args, wants := range map[string][]string{
		"--describe": {`"kind": "processor"`},
		"--help":     {"This is a processor plugin of servetrace.", "SERVE_TRACING_PROCESSOR_PLUGIN=/plugins/test SERVE_TRACING_EXPORTER_PLUGIN=console your-service"},
	} {
		var stdout bytes.Buffer
		err := pluginsdk.Run(t.Context(), pluginsdk.Env{Args: []string{"/plugins/test", args}, Stdout: &stdout}, processorSpec)
		if err != nil {
			t.Error(err)
		}
		for _, want := range wants {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%s prints no %q:\n%s", args, want, stdout.String())
			}
		}
		if args == "--describe" && !json.Valid(stdout.Bytes()) {
			t.Errorf("%s prints no JSON", args)
		}
	}
}

// TestPluginOfTheOtherKind: a host that lists a plugin in the wrong variable gets an error
// with the right variable.
func TestPluginOfTheOtherKind(t *testing.T) {
	forEachProcessor(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		_, err := r.traces.Export(t.Context(), named("fine"))
		want := outcome{
			Code: "UNIMPLEMENTED", Final: true,
			Message: `plugin "test-processor" is a processor plugin, which exports no spans: name it in SERVE_TRACING_PROCESSOR_PLUGIN`,
		}
		if diff := cmp.Diff(want, outcomeOf(err, nil, nil)); diff != "" {
			t.Errorf("Export (-want +got):\n%s", diff)
		}
	})
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		got, _ := processBefore(t.Context(), t, r, encode(t, named("fine")))
		want := outcome{
			Code: "UNIMPLEMENTED", Final: true,
			Message: `plugin "test" is an exporter plugin, which returns no spans: name it in SERVE_TRACING_EXPORTER_PLUGIN`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Process (-want +got):\n%s", diff)
		}
	})
}

// TestLifeOfAProcessorPlugin: the order of calls holds, a call in flight ends with the
// plugin, and the processors are shut down.
func TestLifeOfAProcessorPlugin(t *testing.T) {
	forEachProcessor(t, func(t *testing.T, r *running) {
		process := func(span string) string {
			got, _ := processBefore(t.Context(), t, r, encode(t, named(span)))
			return got.Code
		}
		if code := process("early"); code != "FAILED_PRECONDITION" {
			t.Errorf("Process before Configure answers %s", code)
		}
		r.configure(t, nil)
		if _, err := r.lifecycle.Flush(t.Context(), &pluginv1.FlushRequest{}); err != nil {
			t.Errorf("Flush: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got, _ := processBefore(ctx, t, r, encode(t, named("until told")))
		if got.Code != "DEADLINE_EXCEEDED" || !strings.HasPrefix(got.Message, `processor "edit": `) {
			t.Errorf("a processor that waits has %+v, want its own DEADLINE_EXCEEDED", got)
		}
		_, err := r.lifecycle.Shutdown(t.Context(), &pluginv1.ShutdownRequest{})
		want := "shut down processor \"edit-2\": editor cannot stop\nshut down processor \"edit\": editor cannot stop"
		if err == nil || wire.FromStatus(err).Error() != want {
			t.Errorf("Shutdown: %v, want %s", err, want)
		}
		if code := process("late"); code != "UNAVAILABLE" {
			t.Errorf("Process after Shutdown answers %s", code)
		}
	})
}

func TestProcessorPluginListens(t *testing.T) {
	socket := socketFolder(t) + "/dev.sock"
	l := startListening(t, []string{envMode + "=processor"}, "--listen", socket)
	l.stdout.await(t, "\n")
	if got, want := l.stdout.String(), "SERVE_TRACING_PROCESSOR_PLUGIN=unix://"+socket+"\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	got, _ := processBefore(t.Context(), t, &running{conn: attach(t, socket)}, encode(t, named("edit", "a")))
	if diff := cmp.Diff([]string{"edit-2=1"}, got.Filtered); diff != "" {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, l.ended, "the plugin process to end"); err == nil {
		t.Error("the error of the editor's shutdown is lost")
	}
}

func TestReplace(t *testing.T) {
	before, after := encode(t, named("a", "b")), encode(t, named("c"))
	b := pluginsdk.NewBatch(before)
	for span := range b.Spans() {
		span.SetName("gone with the replacement")
	}
	if err := b.Replace([]byte("\x0a\x7fno")); !pluginsdk.Final(err) || err.Error() != "replace batch: malformed OTLP at byte 0: length past the end" {
		t.Errorf("a malformed replacement: %v", err)
	}
	if err := b.Replace(encode(t, named("a", "b", "c"))); !pluginsdk.Final(err) || b.Len() != 2 {
		t.Errorf("a replacement with more spans: %v, and %d spans are left", err, b.Len())
	}
	if err := b.Replace(after); err != nil || !b.Edited() || b.Len() != 1 || !bytes.Equal(b.Bytes(), after) {
		t.Errorf("replaced: %v, edited %t, %d spans, bytes %x", err, b.Edited(), b.Len(), b.Bytes())
	}
	for span := range b.Spans() {
		span.SetName("later")
	}
	for span := range pluginsdk.NewBatch(b.Bytes()).Spans() {
		if span.Name() != "later" || span.SpanID() != (trace.SpanID{7: 1}) {
			t.Errorf("an edit after the replacement gives span %v with the name %q", span.SpanID(), span.Name())
		}
	}
	if !bytes.Equal(b.Bytes(), b.AppendTo(nil)) {
		t.Error("Bytes and AppendTo differ after a replacement")
	}
	if err := b.Replace(before); err == nil || b.Len() != 1 {
		t.Errorf("dropped spans came back: %v", err)
	}
}
