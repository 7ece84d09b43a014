package hosting

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/servetrace/servetrace/host"
)

// Observe adds the accounting of a host to the Collector's metrics. component is "exporter" or
// "processor", the kind of the Collector's component, and id is the component's name.
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

// ledger has the counts of a plugin's spans by outcome.
type ledger struct {
	host.ExporterStats
	processes bool              // the plugin is a processor, which does not deliver spans
	passed    uint64            // spans that the processor has returned
	bypassed  map[string]uint64 // spans that went on without the processor, by reason
}

// ledgers returns the ledgers of all plugins.
func ledgers(stats host.Stats) (list []ledger) {
	for _, p := range stats.Processors {
		list = append(list, ledger{p.Plugin, true, p.Passed, p.Bypassed})
	}
	for _, x := range stats.Exporters {
		if x.Name != Collector {
			list = append(list, ledger{ExporterStats: x})
		}
	}
	return list
}

// Collector is the name of an entry in the host's list that is no plugin: the socket at which
// the rest of the Collector's pipeline takes batches from the host.
const Collector = "collector"

// report calls count for each outcome, and for each of the outcome's reasons.
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
