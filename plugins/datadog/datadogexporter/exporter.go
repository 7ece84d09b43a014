// Package datadogexporter sends spans to a Datadog agent. It is the exporter of
// the datadog plugin, and can be the exporter of a plugin with processors of its
// own:
//
//	func main() {
//		pluginsdk.Main(pluginsdk.Spec{
//			Name:       "my-datadog",
//			Env:        datadogexporter.EnvPatterns(),
//			EnvAtStart: true, // dd-trace-go reads some variables before main
//			Processors: []pluginsdk.NewProcessor{redact},
//			Exporter:   datadogexporter.New,
//		})
//	}
//
// There are two modes. In the mode "tracer", the exporter starts and ends each span again
// in dd-trace-go, Datadog's own tracer. The tracer converts, samples and counts the
// spans, and makes the requests to the agent. In the mode "otlp", the exporter sends OTLP
// to the agent, which converts the spans itself.
//
// The life of an exporter in the mode "tracer":
//
//  1. [New] reads the settings. It uses no network.
//  2. The first Export checks that the agent answers, and starts the tracer.
//  3. Each Export starts and ends the spans of its batch in the tracer (bridge.go), takes
//     the requests that the tracer makes of them (capture.go), sends these to the agent
//     and waits for the answers. If a request fails, the next Export of the same batch
//     sends the remaining requests unchanged. The spans do not pass the tracer again, so
//     its statistics count them once.
//  4. Shutdown stops the tracer, sends its last statistics and closes the connections.
//
// The exporter does not wait until a trace is complete. If the spans of a trace come in
// several batches, Datadog gets several parts of the trace and joins them. A process has
// a single tracer, so several exporters in one process use it one after another.
//
// Open this file first. settings.go reads the variables. encoder.go and tracer.go use the
// tracer. unit.go, bridge.go and priority.go pass spans to it, and capture.go and
// payload.go take its output. agent.go sends the output. otlp.go is the mode "otlp".
package datadogexporter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/servetrace/servetrace/pluginsdk"
)

var _ pluginsdk.NewExporter = New

// New returns an exporter that is configured by the variables of [EnvPatterns]. If the
// variable for the mode is not set, the mode comes from the part "exporter" of the
// plugin's configuration:
//
//	exporter:
//	  mode: otlp   # as SERVE_DATADOG_MODE; with it, the keys of otlpexporter.New
//
// In the mode "tracer", dd-trace-go reads its own variables from the process's
// environment. For an invalid value, New returns a [pluginsdk.ConfigError] with the
// variable or the path in the configuration. It warns about variables of Datadog that
// have no effect here. New does not block and does not use the network. The exporter is
// safe for concurrent use.
func New(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	var doc document
	if err := s.DecodeConfig(&doc); err != nil {
		return nil, err
	}
	mode, err := readMode(s, doc.Exporter.Mode)
	if err != nil {
		return nil, err
	}
	if mode == modeOTLP {
		return newOTLP(ctx, s, doc)
	}
	return newNative(s, doc)
}

// noRates is the answer to the tracer's requests until the agent has sent sampling rates.
var noRates = []byte("{}")

// native is the exporter of the mode "tracer".
type native struct {
	settings settings
	log      *tracerLog
	rates    atomic.Pointer[[]byte] // the sampling rates in the agent's last answer, as JSON
	// The mutex encoder.busy guards statistics and priorities.
	statistics bool // the tracer computes statistics, and not the agent
	priorities priorities
	// away is true if the last delivery has failed, because the agent did not answer or
	// refused a request temporarily.
	away atomic.Bool

	mu    sync.Mutex
	begun []*delivery // deliveries that were interrupted, at most maxBegun; the oldest is first
	late  []payload   // statistics that the tracer has made without a batch
}

var _ pluginsdk.Exporter = (*native)(nil)

// maxBegun is the largest number of interrupted deliveries that are kept. It is greater than
// the number of calls that the host makes at a time. If one more delivery is interrupted, the
// oldest is forgotten. When its batch comes again, its spans pass through the tracer again.
const maxBegun = 8

// filterName is the name under which the host counts the spans that Datadog's samplers
// drop, as if a processor had filtered them.
const filterName = "datadog.sampler"

func newNative(s pluginsdk.Setup, doc document) (*native, error) {
	if err := doc.onlyMode(); err != nil {
		return nil, err
	}
	chosen, err := readSettings(s)
	if err != nil {
		return nil, err
	}
	s.Log.Info("spans go to the Datadog agent through dd-trace-go, up to some 10,000 a second; for more, set "+EnvMode+"="+modeOTLP,
		"address", chosen.agent.name, "timeout", chosen.agent.timeout.String(), "statistics_by", chosen.statisticsBy())
	n := &native{settings: chosen, log: newTracerLog(s.Log), statistics: !chosen.agentStatistics}
	n.rates.Store(&noRates)
	return n, nil
}

// Export delivers the batch to the agent. It returns nil if the agent has accepted all
// spans, except spans that Datadog's samplers drop. These are counted as filtered.
func (n *native) Export(ctx context.Context, b *pluginsdk.Batch) error {
	return n.export(ctx, b.ID(), b)
}

// export does the work of Export. Tests call it with ids that NewBatch cannot set.
func (n *native) export(ctx context.Context, id string, b *pluginsdk.Batch) error {
	d := n.resume(id)
	if d == nil {
		// After a failed delivery, Export checks the agent before it encodes another batch,
		// because an encoded batch stays in this process. While the agent does not answer,
		// batches should wait in the host.
		if n.away.Load() {
			if err := n.settings.agent.checkReachable(ctx); err != nil {
				return err
			}
		}
		var err error
		if d, err = theEncoder.encode(ctx, n, b); err != nil {
			return err
		}
		d.payloads = append(d.payloads, n.takeLate()...)
	}
	err := n.deliver(ctx, d)
	n.away.Store(err != nil)
	if err != nil {
		n.interrupted(id, d)
		return err
	}
	if !d.taken && d.refused != nil {
		return d.refused
	}
	b.CountFiltered(filterName, d.filtered)
	if d.rejected > 0 {
		return pluginsdk.Partial(d.rejected, d.reason)
	}
	return nil
}

// resume removes and returns the interrupted delivery of the batch with this id. It
// returns nil if there is none.
func (n *native) resume(id string) *delivery {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.begun, func(d *delivery) bool { return d.id == id })
	if i < 0 {
		return nil
	}
	d := n.begun[i]
	n.begun = slices.Delete(n.begun, i, i+1)
	return d
}

// interrupted stores a delivery that has failed, because the host will send the batch
// again. It drops the delivery of a batch without an id.
func (n *native) interrupted(id string, d *delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id == "" {
		return
	}
	if len(n.begun) == maxBegun {
		n.begun = slices.Delete(n.begun, 0, 1)
	}
	d.id = id
	n.begun = append(n.begun, d)
}

func (n *native) addLate(payloads []payload) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = append(n.late, payloads...)
}

func (n *native) takeLate() []payload {
	n.mu.Lock()
	defer n.mu.Unlock()
	late := n.late
	n.late = nil
	return late
}

const reasonTooLarge = "the Datadog agent refuses a payload with a single trace as too large (413)"

// deliver sends the remaining payloads of a delivery to the agent. If the agent refuses a
// payload for good, only the spans of this payload are rejected. It returns an error if
// the delivery must be continued later.
func (n *native) deliver(ctx context.Context, d *delivery) error {
	for len(d.payloads) > 0 {
		p := d.payloads[0]
		body, err := n.settings.agent.send(ctx, p)
		switch {
		case errors.Is(err, errTooLarge) && len(p.chunks) > 1:
			first, second := p.halves()
			d.payloads = append([]payload{first, second}, d.payloads[1:]...)
			continue
		case p.chunks == nil && pluginsdk.Final(err):
			n.settings.log.Warn("the Datadog agent refuses statistics: they are lost", "error", err)
		case errors.Is(err, errTooLarge):
			d.reject(p.kept(), reasonTooLarge)
			d.taken = true // the size of one payload is no reason to reject the whole batch
		case pluginsdk.Final(err):
			d.refused = err
			d.reject(p.kept(), err.Error())
		case err != nil:
			return err
		case p.chunks != nil:
			d.taken = true
			if strings.HasPrefix(string(body), "{") {
				n.rates.Store(&body) // the tracer's next request is answered with these sampling rates
			}
		}
		d.payloads = d.payloads[1:]
	}
	return nil
}

// Shutdown stops the tracer, sends its last statistics and closes the connections.
func (n *native) Shutdown(ctx context.Context) error {
	err := theEncoder.release(ctx, n)
	last := &delivery{payloads: n.takeLate()}
	err = errors.Join(err, n.deliver(ctx, last))
	n.settings.agent.client.CloseIdleConnections()
	return err
}
