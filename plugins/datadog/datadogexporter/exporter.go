// Package datadogexporter sends spans to a Datadog agent. It is the exporter of
// the datadog plugin, and can be that of a plugin with processors of its own:
//
//	func main() {
//		datadogexporter.Reexec()
//		pluginsdk.Main(pluginsdk.Spec{
//			Name:       "my-datadog",
//			Env:        datadogexporter.EnvPatterns(),
//			Limits:     pluginsdk.Limits{MaxConcurrency: 1},
//			Processors: []pluginsdk.NewProcessor{redact},
//			Exporter:   datadogexporter.New,
//		})
//	}
//
// There are two modes. "agent" is the agent's own protocol: dd-trace-go maps and
// encodes, and this package sends what comes out, so that nil means that the
// agent has taken it. "otlp" is OTLP over HTTP to the agent's port for that.
//
// The life of an exporter of the mode agent:
//
//  1. [Reexec] has executed the process again, with what dd-trace-go reads before
//     main.
//  2. [New] reads the settings. No network is asked.
//  3. The first Export asks the agent what it takes (/info), as does the first
//     after one that failed, and starts dd-trace-go's tracer, of which a process
//     has one. From then on each Export sorts the spans of its batch into
//     Datadog's chunks, replays up to 500 of them in the tracer, takes the
//     payload that the tracer believes to send, sends it, and waits for the
//     answer; then come the next. An attempt after one that failed half way goes
//     on from there.
//  4. Shutdown closes the connections; the last exporter of a process ends the
//     tracer.
//
// It holds no span back for others of its trace: those of several batches are
// several chunks, which Datadog joins. It keeps no span after an answer, computes
// no statistics, and sends none of what dd-trace-go sends by itself.
//
// Open this file first; settings.go says what can be asked for, bridge.go sorts
// and replays, mapping.go, names.go and attributes.go are the table of
// docs/datadog.md, tracer.go and environment.go keep dd-trace-go on a leash,
// payload.go and agent.go are what is sent and how, and otlp.go is the other mode.
package datadogexporter

import (
	"context"
	"errors"
	"fmt"

	"github.com/servetrace/servetrace/pluginsdk"
)

var _ pluginsdk.NewExporter = New

// New builds the exporter from the variables that [EnvPatterns] names, or where
// the mode's is not set from the part "exporter" of the plugin's document, whose
// other parts are not its business:
//
//	exporter:
//	  mode: otlp   # as SERVE_DATADOG_MODE; with it, what otlpexporter.New reads
//
// A value that can not be used gives a [pluginsdk.ConfigError] that names the
// variable or the path in the document; variables of Datadog that have no effect
// are told to the operator. It does not block, and asks no network. The exporter
// is safe for concurrent use; in the mode agent calls wait for each other.
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
	return newNative(ctx, s, doc)
}

// native is the mode agent.
type native struct {
	settings settings
	log      *tracerLog
	// turn has something in it while a batch is on its way.
	turn chan struct{}

	// The following belong to whoever has the turn.
	features features
	noV1     bool // an agent that said it took protocol 1.0 did not
	begun    begun
}

var _ pluginsdk.Exporter = (*native)(nil)

// begun is what is delivered of a batch whose last attempt failed half way, so
// that the next goes on from there.
type begun struct {
	batch           string
	spans           int
	units, rejected int // done, of which so many spans were refused
	reason          string
}

func newNative(ctx context.Context, s pluginsdk.Setup, doc document) (pluginsdk.Exporter, error) {
	if err := doc.onlyMode(); err != nil {
		return nil, err
	}
	chosen, err := readSettings(s)
	if err != nil {
		return nil, err
	}
	if errReexec != nil {
		s.Warn("", fmt.Sprintf("spans carry tags of the plugin's own process (_dd.tags.process): %v", errReexec))
	}
	if err := theEncoder.use(ctx); err != nil {
		return nil, err
	}
	s.Log.Info("spans go to the Datadog agent", "address", chosen.agent.name, "timeout", chosen.agent.timeout.String())
	return &native{settings: chosen, log: newTracerLog(s.Log), turn: make(chan struct{}, 1)}, nil
}

// Export delivers the batch in pieces, one after another. nil means that the
// agent has taken all of it.
func (n *native) Export(ctx context.Context, b *pluginsdk.Batch) error {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m := newMapper(n.settings.tags)
	units, unfit := plan(b, m)
	done := n.begun
	if b.ID() == "" || done.batch != b.ID() || done.spans != b.Len() || done.units > len(units) {
		done = begun{batch: b.ID(), spans: b.Len(), rejected: unfit}
		if unfit > 0 {
			done.reason = reasonUnfit
		}
	}
	err := n.deliver(ctx, m, units, &done)
	n.begun = begun{}
	if err != nil {
		n.begun = done
		n.features.known = false // it may be another agent next time
		return err
	}
	if done.rejected > 0 {
		return pluginsdk.Partial(done.rejected, done.reason)
	}
	return nil
}

const reasonUnfit = "a Datadog agent drops traces whose id has zeros in its low 64 bits, and spans without an id"

const reasonTooLarge = "the Datadog agent refuses a trace as too large (413) that comes alone"

// maxUnits is how many chunks are encoded at a time. The tracer's queue holds
// 1,000, and drops what is beyond.
const maxUnits = 500

// deliver sends the units that are not done yet, and notes those that are. What
// is refused for good is so for itself: an error is final only where the agent
// has taken nothing.
func (n *native) deliver(ctx context.Context, m *mapper, units []unit, done *begun) error {
	size := maxUnits
	var refused error
	taken := done.units > 0
	for done.units < len(units) {
		if err := n.meet(ctx); err != nil {
			return err
		}
		piece := pieceOf(units[done.units:], size)
		err := n.sendPiece(ctx, m, piece)
		switch {
		case errors.Is(err, errNoV1):
			n.noV1 = true
			continue
		case errors.Is(err, errTooLarge) && len(piece) > 1:
			size = len(piece) / 2
			continue
		case errors.Is(err, errTooLarge):
			done.reject(piece, reasonTooLarge)
			taken = true // one that is only too large is no reason to end
		case pluginsdk.Final(err):
			refused = err
			done.reject(piece, err.Error())
		case err != nil:
			return err
		default:
			taken = true
		}
		done.units += len(piece)
	}
	if !taken {
		return refused
	}
	return nil
}

// reject notes that the agent refuses a piece.
func (b *begun) reject(piece []unit, reason string) {
	for _, u := range piece {
		b.rejected += len(u.spans)
	}
	b.reason = reason
}

// meet asks the agent what it takes, where that is not known.
func (n *native) meet(ctx context.Context) error {
	if n.features.known {
		return nil
	}
	said, err := n.settings.agent.ask(ctx)
	if err != nil {
		return err
	}
	n.features = said
	return nil
}

// pieceOf is the first units that go together: at most size, of one maker, for
// the agent takes environment, version and host of a payload from one of its
// spans.
func pieceOf(units []unit, size int) []unit {
	n := 1
	for n < min(size, len(units)) && units[n].by == units[0].by {
		n++
	}
	return units[:n]
}

// sendPiece encodes and sends some units.
func (n *native) sendPiece(ctx context.Context, m *mapper, units []unit) error {
	form := encoding{
		v1:     n.settings.v1 && n.features.v1 && !n.noV1,
		events: n.features.events, passed: n.settings.passed,
	}
	if form.v1 {
		form.events, form.passed = true, form.passed+units[0].by.forV1()
	}
	m.events = form.events
	payloads, err := theEncoder.encode(ctx, form, n.log, len(units), func() { bridge(units, m) })
	if err != nil {
		if errors.Is(err, errNotEncoded) {
			return pluginsdk.Permanent(err)
		}
		return err
	}
	for _, p := range payloads {
		if err := n.settings.agent.send(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown closes the connections, and ends dd-trace-go with the last exporter of
// the process.
func (n *native) Shutdown(ctx context.Context) error {
	n.settings.agent.close()
	return theEncoder.release(ctx)
}
