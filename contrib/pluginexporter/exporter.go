// Package pluginexporter is an exporter for the OpenTelemetry Collector that sends spans to
// plugins of servetrace. A Collector that the Collector Builder (ocb) has built with it
// loads, replaces and removes back ends without another build:
//
//	exporters:
//	  servetraceplugin:
//	    exporter_plugin: otlp,./mine
//	    processor_plugin: ./tenant
//	    plugins:
//	      otlp: {config: {processors: [redact: {}]}}
//
// The life of the exporter:
//
//  1. The Collector validates the [Config] and calls Start, which starts a host.Host. The
//     plugins start in the background, as processes of their own. An entry such as
//     unix:///run/p.sock attaches to a plugin that another program has started.
//  2. Each batch is encoded as OTLP and given to the Host, which queues it for each plugin,
//     sends it again after a failure, and restarts plugins.
//  3. A plugin whose file has changed is replaced within some seconds, without a loss.
//  4. Shutdown sends the remaining spans and stops the plugins.
//
// The metric servetraceplugin_spans of the Collector has the accounting of the Host.
//
// Package pluginprocessor of this module is a processor for the Collector, which runs
// processor plugins between its other processors.
//
// The package is a module of its own, because it depends on the Collector. Open this file,
// then config.go.
package pluginexporter

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/metric"

	"github.com/servetrace/servetrace/contrib/pluginexporter/internal/hosting"
	"github.com/servetrace/servetrace/host"
)

// Type is the exporter's type in the Collector's file.
const Type = "servetraceplugin"

// NewFactory returns the factory of the exporter, for traces only.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(component.MustNewType(Type), defaultConfig,
		exporter.WithTraces(newTraces, component.StabilityLevelDevelopment))
}

func newTraces(ctx context.Context, set exporter.Settings, c component.Config) (exporter.Traces, error) {
	cfg := c.(*Config)
	settings, err := cfg.host()
	if err != nil {
		return nil, err
	}
	h, err := hosting.NewHost(settings, set.Logger)
	if err != nil {
		return nil, err
	}
	x := &traces{host: h, sender: set.ID.String(), wait: cfg.WaitForResult}
	return exporterhelper.NewTraces(ctx, set, cfg, x.push,
		exporterhelper.WithStart(func(context.Context, component.Host) (err error) {
			x.observed, err = hosting.Observe(set.MeterProvider, h, "exporter", x.sender)
			return errors.Join(err, h.Start(context.Background()))
		}),
		exporterhelper.WithShutdown(x.shutdown),
		exporterhelper.WithQueue(cfg.Queue),
		exporterhelper.WithRetry(cfg.Retry),
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{Timeout: 0})) // no timeout, because the host has one for each call
}

// traces gives the Collector's batches to a host.Host. Safe for concurrent use.
type traces struct {
	host     *host.Host
	sender   string              // name of the exporter in the Collector's file
	wait     bool                // Config.WaitForResult
	observed metric.Registration // metrics of the host, set by the start
}

// push gives a batch to the host. If the host's queue is full, the Collector may send the
// batch again after a second.
func (x *traces) push(ctx context.Context, td ptrace.Traces) error {
	err := hosting.Send(ctx, x.host, td, x.sender, x.wait)
	if errors.Is(err, host.ErrFull) {
		return exporterhelper.NewThrottleRetry(err, time.Second)
	}
	return err
}

// shutdown sends the remaining spans, and ends the plugins and the metrics.
func (x *traces) shutdown(ctx context.Context) error {
	err := x.host.Shutdown(ctx)
	if x.observed != nil {
		err = errors.Join(err, x.observed.Unregister())
	}
	return err
}
