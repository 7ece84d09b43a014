package pipeline

import (
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// encoder encodes the spans in the lists of the intake to OTLP, and passes each full or
// old batch to Pipeline.enqueue, in pipeline.go.
type encoder struct {
	p *Pipeline

	// mu is held while the spans of all lists are encoded. So a function that holds mu
	// finds each accepted span in exactly one place: a list, the encoder, the consumer,
	// or the queues.
	mu      sync.Mutex
	enc     sdkspan.Encoder
	charged int64 // bytes that the memory account counts for enc
	spare   []sdktrace.ReadOnlySpan
	number  uint64 // number of the last batch that was begun
	refused uint64 // number of refused spans at the last call of logLoss
	losing  bool   // spans were being refused at the last call of logLoss
}

// run encodes spans when a list is long enough, or when a span has waited for
// Settings.BatchAge. It returns when stop is closed.
func (e *encoder) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-e.p.intake.wake:
			e.cycle(false)
		case <-e.p.intake.tick:
			e.cycle(true)
			e.logLoss()
		}
	}
}

// cycle encodes all spans in the lists, and seals full batches. If sealOpen is true, it
// also seals the batches that are not full.
func (e *encoder) cycle(sealOpen bool) {
	defer e.p.LogNotes()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cycleLocked(sealOpen)
}

func (e *encoder) cycleLocked(sealOpen bool) {
	in := e.p.intake
	if sealOpen {
		in.disarm()
	}
	for i := range in.shards {
		spans, bytes := in.shards[i].take(e.spare)
		for _, s := range spans {
			e.encodeLocked(s)
		}
		clear(spans)
		e.spare = spans[:0]
		e.chargeLocked(-bytes)
	}
	if sealOpen && e.enc.Spans() > 0 {
		e.sealLocked()
	}
	if sealOpen {
		e.p.consumer.sealLocked(nil)
	}
	in.setWake(e.p.cfg.BatchSpans - e.enc.Spans())
}

// encodeLocked adds a span to the open batch and seals the batch when it is full. It
// drops a span whose encoding is longer than MaxSpanBytes. This can happen to an
// accepted span, because invalid UTF-8 becomes up to three times as long.
func (e *encoder) encodeLocked(s sdktrace.ReadOnlySpan) {
	cfg := &e.p.cfg
	if n := e.enc.Append(s); n > cfg.MaxSpanBytes {
		e.enc.DropLast()
		e.p.dropEverywhere(1, reasonTooLarge)
		return
	}
	if e.enc.Spans() >= cfg.BatchSpans || e.enc.Bytes() >= cfg.BatchBytes {
		e.sealLocked()
	}
}

// chargeLocked updates the memory account: it counts the present size of the encoder in place
// of the size at the last call. It also adds n, which is negative for spans that have left
// their list, because they counted with their estimated sizes.
func (e *encoder) chargeLocked(n int64) {
	size := int64(e.enc.Size())
	e.p.mem.charge(size - e.charged + n)
	e.charged = size
}

// sealLocked makes a batch of the encoded spans and puts it on the queues, and into the spool
// if there is one. The batch has the bytes. The origin has the id of the batch and its places
// on disk.
func (e *encoder) sealLocked() {
	size, spans := e.enc.Size(), e.enc.Spans()
	data := e.enc.AppendRequest(e.p.mem.arena(size))
	e.enc.Reset()
	o := e.newOriginLocked()
	o.add(e.p.Spool.append(o, spans, data)) // does nothing without a spool
	b := newBatch(e.p.mem, data)
	e.chargeLocked(0)
	e.p.enqueue(b, o, spans)
}

// newOriginLocked returns the origin of a new batch, with the next number.
func (e *encoder) newOriginLocked() *origin {
	e.number++
	return &origin{instance: e.p.Instance, number: e.number}
}

// logLoss logs once when spans begin to be refused, and once when that ends.
func (e *encoder) logLoss() {
	s := Stats{Refused: map[string]uint64{}}
	e.p.intake.lock()
	e.p.intake.statsLocked(&s)
	e.p.intake.unlock()
	e.mu.Lock()
	refused, was := s.Ended-s.Accepted, e.losing
	e.losing = refused > e.refused
	e.refused = refused
	losing := e.losing
	e.mu.Unlock()
	switch {
	case losing && !was:
		e.p.log.Warn("spans are being refused (queue_full: raise "+EnvQueueBytes+" or sample fewer; too_large: see "+EnvMaxSpanBytes+")",
			"refused_so_far", s.Refused)
	case !losing && was:
		e.p.log.Info("spans are no longer refused", "refused_so_far", s.Refused)
	}
}
