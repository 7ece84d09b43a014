package hosting

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/servetrace/servetrace/host"
)

// Observe adds the accounting of a host to the Collector's metrics. component is the kind
// of the Collector's component, "exporter" or "processor", and id its name.
func Observe(provider metric.MeterProvider, h *host.Host, component, id string) (metric.Registration, error) {
	meter := provider.Meter("github.com/servetrace/servetrace/contrib/pluginexporter")
	spans, err := meter.Int64ObservableCounter("servetraceplugin_spans", metric.WithUnit("{span}"),
		metric.WithDescription("Spans by plugin and outcome: delivered, passed, bypassed, rejected, filtered or dropped, with the reason."))
	if err != nil {
		return nil, err
	}
	waiting, err := meter.Int64ObservableGauge("servetraceplugin_spans_waiting", metric.WithUnit("{span}"),
		metric.WithDescription("Spans that wait for a plugin."))
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		stats := h.Stats()
		for _, l := range ledgers(stats) {
			by := []attribute.KeyValue{attribute.String(component, id), attribute.String("plugin", l.Name)}
			l.report(func(outcome, reason string, n uint64) {
				o.ObserveInt64(spans, int64(n), metric.WithAttributes(append(by[:2:2], //nolint:gosec // counts of spans
					attribute.String("outcome", outcome), attribute.String("reason", reason))...))
			})
			o.ObserveInt64(waiting, int64(l.Waiting), metric.WithAttributes(by...)) //nolint:gosec // counts of spans
		}
		return nil
	}, spans, waiting)
}

// ledger is the accounting of a plugin.
type ledger struct {
	host.ExporterStats
	passed    uint64
	bypassed  map[string]uint64
	processes bool
}

// ledgers lists the ledgers of processors and exporters, except the exporter Collector.
func ledgers(stats host.Stats) (list []ledger) {
	for _, p := range stats.Processors {
		list = append(list, ledger{p.Plugin, p.Passed, p.Bypassed, true})
	}
	for _, x := range stats.Exporters {
		if x.Name != Collector {
			list = append(list, ledger{ExporterStats: x})
		}
	}
	return list
}

// Collector is the name of the host's exporter that is the Collector itself.
const Collector = "collector"

// report calls count for each outcome of the ledger.
func (l ledger) report(count func(outcome, reason string, n uint64)) {
	if l.processes {
		count("passed", "", l.passed)
	} else {
		count("delivered", "", l.Delivered)
	}
	for outcome, reasons := range map[string]map[string]uint64{
		"bypassed": l.bypassed, "rejected": l.Rejected, "filtered": l.Filtered, "dropped": l.Dropped,
	} {
		for reason, n := range reasons {
			count(outcome, reason, n)
		}
	}
}
