package otelplugin_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

// rayServe is the RayServeSpanProcessor of Ray Serve's tracing guide, as far as
// a plugin knows about Ray.
type rayServe struct{ job string }

func (r rayServe) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	s.SetAttributes(attribute.String("ray.job_id", r.job))
}
func (rayServe) OnEnd(sdktrace.ReadOnlySpan)      {}
func (rayServe) Shutdown(context.Context) error   { return nil }
func (rayServe) ForceFlush(context.Context) error { return nil }

// printer is a SpanExporter.
type printer struct{}

func (printer) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		fmt.Println(s.Name(), s.Attributes())
	}
	return nil
}
func (printer) Shutdown(context.Context) error { return nil }

// The better of the two plugins above, with stand-ins for Ray Serve's processor
// and OTLP's client.
func Example() {
	spanProcessors := func(_ context.Context, s pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
		return []sdktrace.SpanProcessor{rayServe{s.Context.Job}}, nil
	}
	otlpClient := func(context.Context, pluginsdk.Setup) (otelplugin.TraceClient, error) {
		return uploader{}, nil // or otlptracehttp.NewClient()
	}
	run(pluginsdk.Spec{
		Name:       "ray-otlp",
		Env:        []string{"OTEL_EXPORTER_OTLP_*"},
		Processors: []pluginsdk.NewProcessor{otelplugin.Processors(spanProcessors)},
		Exporter:   otelplugin.Client(otlpClient),
	})
	// Output: span
}

// A function that returns a list of span processors, as Ray Serve's tracing
// takes one in Python, is a plugin.
func ExamplePipeline() {
	spanProcessors := func(_ context.Context, s pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
		return []sdktrace.SpanProcessor{rayServe{s.Context.Job}, sdktrace.NewBatchSpanProcessor(printer{})}, nil
	}
	run(pluginsdk.Spec{
		Name:     "guide",
		Exporter: otelplugin.Pipeline(spanProcessors),
	})
	// Output: span [{"ray.job_id":"01000000"}]
}

// The same with the exporter in its place: the back end's answer is the
// plugin's.
func ExampleProcessors() {
	run(pluginsdk.Spec{
		Name: "better",
		Processors: []pluginsdk.NewProcessor{
			otelplugin.Processors(func(_ context.Context, s pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
				return []sdktrace.SpanProcessor{rayServe{s.Context.Job}}, nil
			}),
		},
		Exporter: otelplugin.Exporter(func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error) {
			return printer{}, nil
		}),
	})
	// Output: span [{"ray.job_id":"01000000"}]
}

func ExampleExporter() {
	run(pluginsdk.Spec{
		Name: "printer",
		Exporter: otelplugin.Exporter(func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error) {
			return printer{}, nil // or stdouttrace.New(stdouttrace.WithWriter(s.Stdout))
		}),
	})
	// Output: span []
}

// uploader stands for otlptracehttp.NewClient(): any otlptrace.Client.
type uploader struct{}

func (uploader) Start(context.Context) error { return nil }
func (uploader) Stop(context.Context) error  { return nil }
func (uploader) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	fmt.Println(spans[0].GetScopeSpans()[0].GetSpans()[0].GetName())
	return nil
}

func ExampleClient() {
	run(pluginsdk.Spec{
		Name: "otlp",
		Env:  []string{"OTEL_EXPORTER_OTLP_*"},
		Exporter: otelplugin.Client(func(context.Context, pluginsdk.Setup) (otelplugin.TraceClient, error) {
			return uploader{}, nil
		}),
	})
	// Output: span
}

// run takes a batch of one span through a plugin; a program calls
// pluginsdk.Main.
func run(spec pluginsdk.Spec) {
	ctx, setup := context.Background(), pluginsdk.Setup{Context: pluginsdk.StaticContext{Job: "01000000"}}
	batch := numbered(1)
	for _, construct := range spec.Processors {
		processor, err := construct(ctx, setup)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := processor.Process(ctx, batch); err != nil {
			fmt.Println(err)
		}
		if err := processor.(pluginsdk.Stopper).Shutdown(ctx); err != nil {
			fmt.Println(err)
		}
	}
	exporter, err := spec.Exporter(ctx, setup)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := exporter.Export(ctx, batch); err != nil {
		fmt.Println(err)
	}
	if err := exporter.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
}
