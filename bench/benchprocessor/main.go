// Command benchprocessor is the processor plugin of several rows. It sets one attribute on
// each span. The variable BENCH_PROCESSOR chooses the form of its answers.
package main

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/pluginsdk"
)

var team = attribute.String("team", "search")

var answers = map[string]func(context.Context, *pluginsdk.Batch) error{
	// unchanged edits a copy of the batch, so that the answer is that nothing has changed.
	// As the SDK does after a call, it releases the memory of the edits.
	"unchanged": func(_ context.Context, b *pluginsdk.Batch) error {
		r, err := otlpwire.Parse(b.Bytes())
		if err != nil {
			return err
		}
		defer r.Release()
		for span := range r.Spans() {
			span.SetAttribute(team)
		}
		return nil
	},
	"patch": func(_ context.Context, b *pluginsdk.Batch) error {
		edit(b)
		return nil
	},
	"whole": func(_ context.Context, b *pluginsdk.Batch) error {
		edit(b)
		return b.Replace(b.Bytes())
	},
}

func edit(b *pluginsdk.Batch) {
	for span := range b.Spans() {
		span.SetAttributes(team)
	}
}

func main() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "benchprocessor", Env: []string{"BENCH_PROCESSOR"},
		Processors: []pluginsdk.NewProcessor{func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
			form := s.Getenv("BENCH_PROCESSOR")
			process, ok := answers[form]
			if !ok {
				return nil, fmt.Errorf("BENCH_PROCESSOR=%q: want unchanged, patch or whole", form)
			}
			return pluginsdk.ProcessorFunc("edit", process)(ctx, s)
		}},
	})
}
