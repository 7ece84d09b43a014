package spanpath

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/internal/wire"
)

// startRelay starts a relay that takes spans at a socket and sends them to the sink.
type startRelay func(ctx context.Context, o order, socket, compression string) (*child.Child, error)

// relays opens a relay. Its load is requests of requestSpans spans, which are encoded only
// once.
func relays(start startRelay, compression string) opener {
	return func(ctx context.Context, o order) (*way, error) {
		dir, err := os.MkdirTemp("", "relay")
		if err != nil {
			return nil, err
		}
		socket := filepath.Join(dir, "s")
		process, err := start(ctx, o, socket, compression)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.WaitForReady(true)))
		if err != nil {
			return nil, errors.Join(err, process.Terminate(), os.RemoveAll(dir))
		}
		var e sdkspan.Encoder
		for _, s := range endedSpans() {
			e.Append(s)
		}
		body := e.AppendRequest(nil)
		request := &wire.Outgoing{Buffers: func() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(body)} }}
		return &way{
			batch: requestSpans,
			produce: func() func(int) {
				return func(int) {
					ctx, cancel := context.WithTimeout(ctx, flushTime)
					defer cancel()
					_ = conn.Invoke(ctx, coltracepb.TraceService_Export_FullMethodName, request, &wire.Incoming{}) // lost if it is not taken
				}
			},
			flush: func(ctx context.Context, taken uint64) error { return awaitSink(ctx, o.Sink, taken, func() {}) },
			close: func(context.Context) error {
				return errors.Join(conn.Close(), process.Terminate(), os.RemoveAll(dir))
			},
			relay: process.PID,
		}, nil
	}
}

// startOurRelay starts "servetrace relay" with plugins/otlp.
func startOurRelay(ctx context.Context, o order, socket, compression string) (*child.Child, error) {
	return child.StartProgram(ctx, []string{
		"SERVE_TRACING_EXPORTER_PLUGIN=" + filepath.Join(o.Bin, "plugins", pluginOTLP),
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + o.Sink.HTTP, "SERVE_TRACING_PLUGIN_WRITABLE=allow",
		"OTEL_EXPORTER_OTLP_COMPRESSION=" + compression,
	}, filepath.Join(o.Bin, "servetrace"), "relay", "--socket", socket)
}

// startCollector starts a Collector with the defaults of its receiver and exporter. By
// default, the exporter compresses with gzip.
func startCollector(ctx context.Context, o order, socket, compression string) (*child.Child, error) {
	type object = map[string]any
	config, err := json.Marshal(object{ // JSON is YAML
		"receivers": object{"otlp": object{"protocols": object{"grpc": object{"endpoint": socket, "transport": "unix"}}}},
		"exporters": object{"otlp_http": object{"endpoint": "http://" + o.Sink.HTTP, "compression": compression}},
		"service": object{
			"telemetry": object{"metrics": object{"level": "none"}, "logs": object{"level": "warn"}},
			"pipelines": object{"traces": object{"receivers": []string{"otlp"}, "exporters": []string{"otlp_http"}}},
		},
	})
	file := socket + ".json"
	if err := errors.Join(err, os.WriteFile(file, config, 0o600)); err != nil {
		return nil, err
	}
	return child.StartProgram(ctx, nil, o.Collector, "--config", file)
}
