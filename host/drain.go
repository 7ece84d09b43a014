package host

import (
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// drain turns spans into sealed batches: it takes the intake's lists, encodes
// what is on them and hands each full batch to all exporters.
type drain struct {
	host *Host
	// refused and losing tell when spans begin and cease to be refused; only
	// the worker touches them.
	refused uint64
	losing  bool

	// mu is held over a whole cycle, so that whoever else holds it finds every
	// span either on a list, in the encoder, or with the exporters.
	mu      sync.Mutex
	enc     sdkspan.Encoder
	charged int64 // bytes of enc that are on the account
	spare   []sdktrace.ReadOnlySpan
}

// run drains whenever a list is long enough or a span has waited long enough,
// until stop is closed.
func (d *drain) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-d.host.intake.wake:
			d.cycle(false)
		case <-d.host.intake.tick:
			d.cycle(true)
			d.watchLoss()
		}
	}
}

// cycle encodes all that has ended. Full batches are sealed, and with all the
// last one too, however small.
func (d *drain) cycle(all bool) {
	defer d.host.tellAll()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cycleLocked(all)
}

func (d *drain) cycleLocked(all bool) {
	in := d.host.intake
	if all {
		in.disarm()
	}
	in.reported.Store(0)
	for i := range in.shards {
		spans, bytes := in.shards[i].take(d.spare)
		for _, s := range spans {
			d.encodeLocked(s)
		}
		clear(spans)
		d.spare = spans[:0]
		d.chargeLocked(-bytes)
	}
	if all && d.enc.Spans() > 0 {
		d.sealLocked()
	}
}

// encodeLocked adds a span to the open batch and seals the batch when it is
// full. A span whose encoding is above the cap, though its estimate was not
// (invalid UTF-8 grows threefold), is dropped.
func (d *drain) encodeLocked(s sdktrace.ReadOnlySpan) {
	cfg := &d.host.cfg
	if n := d.enc.Append(s); n > cfg.MaxSpanBytes {
		d.enc.DropLast()
		d.host.dropEverywhere(1, reasonTooLarge)
		return
	}
	if d.enc.Spans() >= cfg.BatchSpans || d.enc.Bytes() >= cfg.BatchBytes {
		d.sealLocked()
	}
}

// chargeLocked brings the account up to what is in the encoder now, and moves it
// by n besides. A list is on the account as objects until all of it is encoded.
func (d *drain) chargeLocked(n int64) {
	size := int64(d.enc.Size())
	d.host.mem.charge(size - d.charged + n)
	d.charged = size
}

// sealLocked makes a batch of what is in the encoder.
func (d *drain) sealLocked() {
	size, spans := d.enc.Size(), d.enc.Spans()
	data := d.enc.AppendRequest(d.host.mem.arena(size))
	d.enc.Reset()
	b := newBatch(d.host.mem, data, spans)
	d.chargeLocked(0)
	d.host.enqueue(b)
}

// watchLoss says once when spans begin to be refused and once when that ends.
func (d *drain) watchLoss() {
	byReason := d.host.Stats().Refused
	refused := total(byReason)
	losing := refused > d.refused
	switch {
	case losing && !d.losing:
		d.host.log.Warn("spans are being refused (queue_full: raise "+EnvQueueBytes+" or sample fewer; too_large: see "+EnvMaxSpanBytes+")",
			"refused_so_far", byReason)
	case !losing && d.losing:
		d.host.log.Info("spans are no longer refused", "refused_so_far", byReason)
	}
	d.refused, d.losing = refused, losing
}
