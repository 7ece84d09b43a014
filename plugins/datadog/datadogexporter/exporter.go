// Package datadogexporter sends spans to a Datadog agent. It is the exporter of
// the datadog plugin, and can be that of a plugin with processors of its own:
//
//	func main() {
//		pluginsdk.Main(pluginsdk.Spec{
//			Name:       "my-datadog",
//			Env:        datadogexporter.EnvPatterns(),
//			Processors: []pluginsdk.NewProcessor{redact},
//			Exporter:   datadogexporter.New,
//		})
//	}
//
// There are two modes. "agent" is the agent's own protocol: spans become its
// payloads straight from the bytes of OTLP, without dd-trace-go or any other
// tracer, and nil means that the agent has taken them. "otlp" is OTLP over HTTP
// to the agent's port for that.
//
// The life of an exporter of the mode agent:
//
//  1. [New] reads the settings. No network is asked.
//  2. The first Export asks the agent what it takes (/info), as does the first
//     after one that failed. From then on each Export sorts the spans of its
//     batch into Datadog's chunks, writes these into a payload until it is full,
//     sends that and waits for the answer; then comes the next. An attempt after
//     one that failed half way goes on from there.
//  3. Shutdown closes the connections.
//
// It holds no span back for others of its trace: those of several batches are
// several chunks, which Datadog joins. It keeps no span after an answer, computes
// no statistics, and sends nothing but spans.
//
// Open this file first; settings.go says what can be asked for. spans.go reads a
// batch, wire.go, value.go and keys.go are what it reads with. mapping.go,
// names.go, tags.go and peer.go are the table of docs/datadog.md. v04.go and
// v1.go are the agent's two protocols, agent.go and container.go what is sent
// and how; otlp.go is the other mode.
package datadogexporter

import (
	"context"
	"errors"
	"sync"

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
// is safe for concurrent use.
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

// native is the mode agent.
type native struct {
	settings settings
	// payload is beyond how many bytes a payload is sent.
	payload int
	// idle are coders for the next calls. A sync.Pool would lose their memory with
	// every collection, of which a process with so small a heap has many.
	idle chan *coder

	mu       sync.Mutex
	features features
	noV1     bool // an agent that said it took protocol 1.0 did not
	// begun are the batches of which a part is delivered, by their ids. At most
	// maxBegun.
	begun map[string]begun
}

var _ pluginsdk.Exporter = (*native)(nil)

// fullPayload is dd-trace-go's, in bytes: an agent takes 25 MB, what stands in
// front of it often less.
const fullPayload = 4_750_000

// maxBegun is more than a host has in flight. Batches that are never sent again
// leave their entries behind, until all are forgotten: then a batch that failed
// half way is sent whole.
const maxBegun = 64

// begun is what is delivered of a batch whose last attempt failed half way, so
// that the next goes on from there.
type begun struct {
	spans, of        int // of the batch; of: its chunks
	chunks, rejected int // done, of which so many spans were refused
	reason           string
}

func newNative(s pluginsdk.Setup, doc document) (*native, error) {
	if err := doc.onlyMode(); err != nil {
		return nil, err
	}
	chosen, err := readSettings(s)
	if err != nil {
		return nil, err
	}
	s.Log.Info("spans go to the Datadog agent", "address", chosen.agent.name, "timeout", chosen.agent.timeout.String())
	return &native{settings: chosen, payload: fullPayload, begun: map[string]begun{}, idle: make(chan *coder, maxIdle)}, nil
}

// Export delivers the batch in payloads, one after another. nil means that the
// agent has taken all of it.
func (n *native) Export(ctx context.Context, b *pluginsdk.Batch) error {
	c := n.coder()
	defer n.done(c)
	return n.export(ctx, c, b.ID(), c.request(b))
}

func (n *native) export(ctx context.Context, c *coder, id string, request []byte) error {
	if err := c.sort(request); err != nil {
		return pluginsdk.Permanent(err)
	}
	spans := len(c.batch.spans) + c.batch.unfit
	done := n.resume(id, spans, len(c.batch.chunks))
	if done.spans == 0 {
		done = begun{spans: spans, of: len(c.batch.chunks), rejected: c.batch.unfit}
		if done.rejected > 0 {
			done.reason = reasonUnfit
		}
	}
	if err := n.deliver(ctx, c, &done); err != nil {
		n.interrupted(id, done, err)
		return err
	}
	if done.rejected > 0 {
		return pluginsdk.Partial(done.rejected, done.reason)
	}
	return nil
}

// maxIdle is how many calls a host makes at a time.
const maxIdle = 4

func (n *native) coder() *coder {
	select {
	case c := <-n.idle:
		return c
	default:
		return newCoder(&n.settings.mapping)
	}
}

func (n *native) done(c *coder) {
	select {
	case n.idle <- c:
	default: // there are enough
	}
}

// resume gives what is delivered of a batch, and forgets it.
func (n *native) resume(id string, spans, chunks int) begun {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := n.begun[id]
	delete(n.begun, id)
	if done.spans != spans || done.of != chunks { // an edit of another kind than before
		return begun{}
	}
	return done
}

// interrupted notes what is delivered of a batch, if it will be sent again.
func (n *native) interrupted(id string, done begun, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.features.known = false // it may be another agent next time
	if id == "" || done.chunks == 0 || pluginsdk.Final(err) {
		return
	}
	if len(n.begun) == maxBegun {
		clear(n.begun)
	}
	n.begun[id] = done
}

const reasonUnfit = "a Datadog agent drops traces whose id has zeros in its low 64 bits, and spans without an id"

const reasonTooLarge = "the Datadog agent refuses a trace as too large (413) that comes alone"

// deliver sends the chunks that are not done yet, and notes those that are. What
// is refused for good is so for itself: an error is final only where the agent
// has taken nothing.
func (n *native) deliver(ctx context.Context, c *coder, done *begun) error {
	chunks := c.batch.chunks
	most := len(chunks)
	var refused error
	taken := done.chunks > 0
	for done.chunks < len(chunks) {
		form, err := n.meet(ctx)
		if err != nil {
			return err
		}
		p, err := c.encode(chunks[done.chunks:], most, n.payload, form)
		if err != nil {
			return pluginsdk.Permanent(err)
		}
		piece := chunks[done.chunks : done.chunks+p.chunks]
		err = n.settings.agent.send(ctx, p)
		switch {
		case errors.Is(err, errNoV1):
			n.forgetV1()
			continue
		case errors.Is(err, errTooLarge) && len(piece) > 1:
			most = len(piece) / 2
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
		done.chunks += len(piece)
	}
	if !taken {
		return refused
	}
	return nil
}

// reject notes that the agent refuses some chunks.
func (b *begun) reject(chunks []chunk, reason string) {
	for i := range chunks {
		b.rejected += int(chunks[i].length)
	}
	b.reason = reason
}

// meet asks the agent what it takes, where that is not known. Calls that find it
// unknown at the same time ask each for itself.
func (n *native) meet(ctx context.Context) (form, error) {
	n.mu.Lock()
	said := n.features
	n.mu.Unlock()
	if !said.known {
		var err error
		if said, err = n.settings.agent.ask(ctx); err != nil {
			return form{}, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.features = said
	v1 := n.settings.v1 && said.v1 && !n.noV1
	return form{v1: v1, events: v1 || said.events}, nil
}

func (n *native) forgetV1() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noV1 = true
}

// Shutdown closes the connections.
func (n *native) Shutdown(context.Context) error {
	n.settings.agent.close()
	return nil
}
