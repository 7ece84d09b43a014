package pluginexporter

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/servetrace/servetrace/host"
)

// observe adds the accounting of the host to the Collector's metrics.
func (x *traces) observe(provider metric.MeterProvider) error {
	meter := provider.Meter("github.com/servetrace/servetrace/contrib/pluginexporter")
	spans, err := meter.Int64ObservableCounter("servetraceplugin_spans", metric.WithUnit("{span}"),
		metric.WithDescription("Spans by plugin and outcome: delivered, rejected, filtered or dropped, with the reason."))
	if err != nil {
		return err
	}
	waiting, err := meter.Int64ObservableGauge("servetraceplugin_spans_waiting", metric.WithUnit("{span}"),
		metric.WithDescription("Spans that wait for a plugin."))
	if err != nil {
		return err
	}
	x.observed, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, one := range x.host.Stats().Exporters {
			x.report(one, func(outcome, reason string, n uint64) {
				o.ObserveInt64(spans, int64(n), metric.WithAttributes( //nolint:gosec // counts of spans
					attribute.String("exporter", x.sender), attribute.String("plugin", one.Name),
					attribute.String("outcome", outcome), attribute.String("reason", reason)))
			})
			o.ObserveInt64(waiting, int64(one.Waiting), metric.WithAttributes( //nolint:gosec // counts of spans
				attribute.String("exporter", x.sender), attribute.String("plugin", one.Name)))
		}
		return nil
	}, spans, waiting)
	return err
}

// report calls count for each outcome of an exporter's ledger.
func (x *traces) report(one host.ExporterStats, count func(outcome, reason string, n uint64)) {
	count("delivered", "", one.Delivered)
	for outcome, reasons := range map[string]map[string]uint64{
		"rejected": one.Rejected, "filtered": one.Filtered, "dropped": one.Dropped,
	} {
		for reason, n := range reasons {
			count(outcome, reason, n)
		}
	}
}
