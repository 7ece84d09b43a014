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
// There are two modes. "tracer" replays spans through dd-trace-go, Datadog's own
// tracer, which maps, samples and counts them and makes the agent's payloads.
// "otlp" sends OTLP to the agent's port for that, and the agent maps.
//
// The life of an exporter of the mode tracer:
//
//  1. [New] reads the settings. It uses no network.
//  2. The first Export asks the agent whether it is there, and starts the tracer.
//  3. Each Export starts and ends the spans of its batch in the tracer (bridge.go),
//     takes the payloads that the tracer makes of them (capture.go), sends them
//     and waits for the answers. If one fails, the next attempt for the batch
//     sends what is left of the same bytes: no span is replayed, so that
//     statistics count it once.
//  4. Shutdown stops the tracer, sends its last statistics and closes the
//     connections.
//
// The package holds no span back for others of its trace: the spans of a trace
// that come in several batches are several chunks, which Datadog joins. A process
// has one tracer; exporters that share a process take turns.
//
// Open this file first; settings.go reads the variables. tracer.go drives the
// tracer, bridge.go, unit.go and verdict.go feed it, capture.go and payload.go
// take what it makes, agent.go sends; otlp.go is the other mode.
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

// New builds the exporter from the variables that [EnvPatterns] names, or if the
// mode's is not set from the part "exporter" of the plugin's document, whose
// other parts are not its business:
//
//	exporter:
//	  mode: otlp   # as SERVE_DATADOG_MODE; with it, the keys of otlpexporter.New
//
// In the mode tracer dd-trace-go reads its own variables from the process's
// environment. A value that cannot be used gives a [pluginsdk.ConfigError] that
// names the variable or the path in the document; variables of Datadog that have
// no effect are reported to the operator. It does not block, and uses no network.
// The exporter is safe for concurrent use.
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

// native is the mode tracer.
type native struct {
	settings settings
	log      *tracerLog
	rates    rates
	// statistics and verdicts are guarded by the encoder's turn.
	statistics bool // the tracer computes them
	verdicts   verdicts
	// away says that the agent did not answer the last payload, or refused it for
	// now.
	away atomic.Bool

	mu sync.Mutex
	// begun are the batches that are encoded and not delivered, by their ids, and
	// order has the ids. At most maxBegun.
	begun map[string]*delivery
	order []string
	late  []payload // statistics that no batch is waiting for
}

var _ pluginsdk.Exporter = (*native)(nil)

// maxBegun is more than a host has in flight. The oldest is forgotten, and its
// spans are replayed if it comes again after all.
const maxBegun = 8

// filterName is the name under which the host's books have the spans that
// Datadog's samplers leave out.
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
	return &native{
		settings: chosen, log: newTracerLog(s.Log), statistics: !chosen.agentStatistics,
		begun: map[string]*delivery{},
	}, nil
}

// Export delivers the batch. nil means that the agent has taken all of it but the
// spans that Datadog's samplers leave out, which are counted as filtered.
func (n *native) Export(ctx context.Context, b *pluginsdk.Batch) error {
	return n.export(ctx, b.ID(), b)
}

// export is Export of a batch with an id.
func (n *native) export(ctx context.Context, id string, b *pluginsdk.Batch) error {
	d := n.resume(id)
	if d == nil {
		// A batch that is encoded is kept. While the agent is away the host tries
		// one after another, which are better off there.
		if n.away.Load() {
			if err := n.settings.agent.meet(ctx); err != nil {
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

// resume returns what is left of a batch, and forgets it; nil if it is new.
func (n *native) resume(id string) *delivery {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.begun[id]
	if d != nil {
		delete(n.begun, id)
		n.order = slices.DeleteFunc(n.order, func(other string) bool { return other == id })
	}
	return d
}

// interrupted keeps what is left of a batch that will come again.
func (n *native) interrupted(id string, d *delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id == "" {
		return
	}
	if len(n.order) == maxBegun {
		delete(n.begun, n.order[0])
		n.order = n.order[1:]
	}
	n.begun[id] = d
	n.order = append(n.order, id)
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

const reasonTooLarge = "the Datadog agent refuses a trace as too large (413) that comes alone"

// deliver sends the payloads that are left. A payload that is refused for good
// costs its own spans.
func (n *native) deliver(ctx context.Context, d *delivery) error {
	for len(d.payloads) > 0 {
		p := d.payloads[0]
		said, err := n.settings.agent.send(ctx, p)
		switch {
		case errors.Is(err, errTooLarge) && len(p.chunks) > 1:
			first, second := p.halves()
			d.payloads = append([]payload{first, second}, d.payloads[1:]...)
			continue
		case p.chunks == nil && pluginsdk.Final(err):
			n.settings.log.Warn("the Datadog agent refuses statistics: they are lost", "error", err)
		case errors.Is(err, errTooLarge):
			d.reject(p.kept(), reasonTooLarge)
			d.taken = true // one that is only too large is no reason to end
		case pluginsdk.Final(err):
			d.refused = err
			d.reject(p.kept(), err.Error())
		case err != nil:
			return err
		case p.chunks != nil:
			d.taken = true
			n.learn(said)
		}
		d.payloads = d.payloads[1:]
	}
	return nil
}

// learn keeps the agent's sampling rates, for the tracer's next payload.
func (n *native) learn(said []byte) {
	if strings.HasPrefix(string(said), "{") {
		n.rates.Store(&said)
	}
}

// Shutdown stops the tracer, sends what that brings and closes the connections.
func (n *native) Shutdown(ctx context.Context) error {
	err := theEncoder.release(ctx, n)
	last := &delivery{payloads: n.takeLate()}
	err = errors.Join(err, n.deliver(ctx, last))
	n.settings.agent.close()
	return err
}
