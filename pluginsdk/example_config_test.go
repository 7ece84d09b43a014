package pluginsdk_test

import (
	"context"
	"fmt"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The configuration is strict: its keys must exist and fit.
func ExampleSetup_DecodeConfig() {
	type config struct {
		Endpoint string            `yaml:"endpoint"`
		Timeout  time.Duration     `yaml:"timeout"`
		Headers  map[string]string `yaml:"headers"`
	}
	for _, document := range []string{
		"endpoint: https://acme.example\nheaders: {x-team: search}\n",
		"endpoint: https://acme.example\ntimeout: 5\nheader: {x-team: search}\n",
	} {
		c := config{Timeout: 5 * time.Second}
		if err := (pluginsdk.Setup{Config: []byte(document)}).DecodeConfig(&c); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(c.Endpoint, c.Timeout, c.Headers)
	}
	// Output:
	// https://acme.example 5s map[x-team:search]
	// timeout: line 2: "5", want a duration such as "1m30s"
	// header: line 3: unknown key "header", want one of endpoint, timeout, headers
}

// One plugin with two back ends: each gets every batch.
func ExampleTee() {
	printing := func(prefix string) pluginsdk.NewExporter {
		return func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
				if prefix == "second" && b.Attempt() == 1 {
					return fmt.Errorf("not now")
				}
				fmt.Println(prefix, b.Len())
				return nil
			}), nil
		}
	}
	exporter, err := pluginsdk.Tee(printing("first"), printing("second"))(context.Background(), pluginsdk.Setup{})
	if err != nil {
		fmt.Println(err)
		return
	}
	encoded, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "one"}}}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Under Main a host sends the batch again, to "second" alone.
	fmt.Println(exporter.Export(context.Background(), pluginsdk.NewBatch(encoded)))
	// Output:
	// first 1
	// exporter 2 of 2: not now
}

// A constructor that makes as many processors as the document names.
func ExampleChain() {
	list := func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
		var c struct {
			Drop []string `yaml:"drop"`
		}
		if err := s.DecodeConfig(&c); err != nil {
			return nil, err
		}
		var chain pluginsdk.Chain
		for _, name := range c.Drop {
			part, err := pluginsdk.EachSpan("drop-"+name, func(span pluginsdk.Span) error {
				if span.Name() == name {
					span.Drop()
				}
				return nil
			})(context.Background(), s)
			if err != nil {
				return nil, err
			}
			chain = append(chain, part)
		}
		return chain, nil // the host counts what drop-health and drop-ready drop apart
	}
	processor, err := list(context.Background(), pluginsdk.Setup{Config: []byte("drop: [health, ready]")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(processor.(pluginsdk.Chain)))
	// Output: 2
}
