package spanpath

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/servetrace/servetrace/host"
)

var ourRows = []row{
	{name: rowOursNoop, doc: "our host and a plugin whose exporter does nothing", nowhere: true, open: ours("discard")},
	{name: rowOurs, doc: "our host and plugins/otlp, which passes the bytes on", open: ours("otlp")},
	{name: rowOursGzip, doc: "the same, compressed by the plugin", open: ours("otlp", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip")},
	{name: rowOursRay, doc: "the same with the processor raycontext, which edits the bytes of every span", open: ours("otlp", "SERVE_RAY_CONTEXT=on")},
	{
		name: rowOursFull, doc: "our host and a plugin that decodes every span into the SDK's, and encodes it again by our encoder",
		open: ours("decode"),
	},
	{
		name: rowOursSDK, doc: "our host and a plugin around the SDK's own OTLP/HTTP exporter, unchanged: decoded, transformed, marshalled",
		open: ours("sdkexporter"),
	},
	{
		name: rowOursThird, doc: "our host and test/contrib/otlp-client-plugin: a module of its own, on pluginsdk and otlptracehttp alone",
		open: ours("thirdparty"),
	},
}

// ours opens our host with a plugin, which gets the variables.
func ours(plugin string, variables ...string) func(context.Context, rig) (*way, error) {
	return func(ctx context.Context, r rig) (*way, error) {
		cfg := host.Config{
			Plugins: filepath.Join(r.bin, "plugins", plugin),
			Environ: append(variables, "PATH=/usr/bin:/bin",
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+r.sink.HTTP, "DD_TRACE_AGENT_URL=http://"+r.sink.Datadog),
			// The benchmark's binaries may lie in a folder that others can write.
			AllowWritable: true,
		}
		h, err := host.New(cfg, host.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err
		}
		if err := h.Start(ctx); err != nil {
			return nil, err
		}
		w := sdkWay(h)
		w.host = h
		w.plugins = func() (ids []int) {
			for _, x := range h.Stats().Exporters {
				ids = append(ids, x.PID)
			}
			return ids
		}
		if err := awaitReady(ctx, h); err != nil {
			_ = w.close(ctx)
			return nil, err
		}
		return w, nil
	}
}

func awaitReady(ctx context.Context, h *host.Host) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		list := h.Stats().Exporters
		i := slices.IndexFunc(list, func(x host.ExporterStats) bool { return x.State != host.StateReady })
		if i < 0 {
			return nil
		}
		x := list[i]
		if time.Now().After(deadline) {
			return fmt.Errorf("plugin %s is %v: %s", x.Path, x.State, x.LastError)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}
