package testplugin

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
)

// scripted is a good plugin that behaves as the names of its spans demand. "permanent",
// "retryable" and "partial" are answers. "filtered" is dropped by a processor. "slow"
// takes a second, and "stuck" until the call is cancelled. Other spans are recorded.
// answers overrides the answer to a name.
func scripted(answers map[string]error) pluginsdk.Spec {
	s := spec(func(ctx context.Context, b *pluginsdk.Batch) error {
		for span := range b.Spans() {
			if err := perform(ctx, span.Name(), answers); err != nil {
				return err
			}
		}
		return record(ctx, b)
	})
	s.Processors = []pluginsdk.NewProcessor{
		pluginsdk.EachSpan("by-name", func(span pluginsdk.Span) error {
			if span.Name() == "filtered" {
				span.Drop()
			}
			return nil
		}),
	}
	return s
}

// scriptedProcessor is scripted before the exporters. It also sets the attribute
// "processed" on each span, and answers "whole" with a whole batch.
func scriptedProcessor() pluginsdk.Spec {
	s := scripted(nil)
	s.Exporter = nil
	s.Processors = append(s.Processors, pluginsdk.ProcessorFunc("processed", func(ctx context.Context, b *pluginsdk.Batch) error {
		for span := range b.Spans() {
			if err := perform(ctx, span.Name(), nil); err != nil {
				return err
			}
			span.SetAttributes(attribute.Bool("processed", true))
			if span.Name() == "whole" {
				return b.Replace(b.Bytes())
			}
		}
		return nil
	}))
	return s
}

func perform(ctx context.Context, name string, answers map[string]error) error {
	if err := answers[name]; err != nil {
		return err
	}
	switch name {
	case "permanent":
		return pluginsdk.Permanent(errors.New("the back end does not know this token"))
	case "retryable":
		return errors.New("the back end is restarting")
	case "partial":
		return pluginsdk.Partial(1, "name too long")
	case "slow":
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	case "stuck":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
