package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Errors of Consume and Deliver. Package host documents them.
var (
	ErrFull      = errors.New("no room for the spans")
	ErrMalformed = errors.New("the request is malformed")
	ErrTooLarge  = errors.New("the request is too large")
	ErrClosed    = errors.New("the tracing host takes no spans")
)

// consumeShare bounds the bytes of all requests that no exporter has finished. It is a
// part of the memory for encoded batches, or of the spool if the requests are on disk.
// So while one exporter works, requests do not push out batches.
//
// senderShare bounds the bytes of one sender: at most so many times the bytes that are
// free. So a single sender fills three quarters of the room, and the next sender always
// finds some.
const (
	consumeShare = 7.0 / 8
	senderShare  = 3
)

// Taken is the result of a request that was accepted.
type Taken struct{ Spans, TooLarge int }

// Outcome is the result of a request in all queues.
type Outcome struct {
	Taken
	Delivered, Rejected, Filtered, Dropped, Spooled uint64
}

// settled returns the sum of the counts of spans in o.
func (o *Outcome) settled() uint64 {
	return o.Delivered + o.Rejected + o.Filtered + o.Dropped + o.Spooled
}

func (o *Outcome) add(n Outcome) {
	o.Spooled += n.Spooled
	o.Delivered += n.Delivered
	o.Rejected += n.Rejected
	o.Filtered += n.Filtered
	o.Dropped += n.Dropped
}

// consumer accepts requests of other programs, which are encoded already. It appends
// each request to the open batch, which is valid because OTLP requests merge by
// concatenation. The encoder's mutex guards it.
type consumer struct {
	p      *Pipeline
	closed bool

	open    []byte
	spans   int     // number of spans in open
	origin  *origin // facts about the open batch, with a load for each of its requests
	charged int64   // bytes that the memory account counts for open: its capacity
	last    int     // length of the longest recent batch, less an eighth for each shorter batch since then

	ended, accepted, tooLarge uint64
	pushedBack                uint64 // number of spans in requests that were answered with ErrFull; they are in none of the counts above
}

// load is the number of bytes that a request counts against its sender. The function
// release ends the count.
type load struct {
	senders *senders
	sender  string
	bytes   int64
	done    bool
}

// senders counts the bytes of all loads, together and by sender. The pipeline's mutex
// guards it.
type senders struct {
	limit int64
	total int64
	held  map[string]int64 // bytes by sender; no entry is zero
}

func newSenders(room int64) senders {
	return senders{limit: int64(float64(room) * consumeShare), held: map[string]int64{}}
}

// admit counts a load. It returns false, and counts nothing, if the sender has used up
// its share.
func (s *senders) admit(l *load) bool {
	if free := s.limit - s.total - l.bytes; s.held[l.sender]+l.bytes > senderShare*free {
		return false
	}
	s.add(l)
	return true
}

// add counts a load even if no bytes are free.
func (s *senders) add(l *load) {
	s.total += l.bytes
	s.held[l.sender] += l.bytes
}

// most returns the size of the largest load that admit can accept.
func (s *senders) most() int64 { return s.limit * senderShare / (senderShare + 1) }

// release stops counting some loads. It ignores loads that were released before.
func release(list []*load) {
	for _, l := range list {
		if l.done {
			continue
		}
		l.done = true
		s := l.senders
		s.total -= l.bytes
		if s.held[l.sender] -= l.bytes; s.held[l.sender] == 0 {
			delete(s.held, l.sender)
		}
	}
}

// Consume accepts the spans of an encoded request. It copies the request and does not
// wait for the exporters.
func (p *Pipeline) Consume(request []byte, sender string) (Taken, error) {
	return p.consume(request, sender, nil)
}

// Deliver is Consume, but the request is a batch of its own, and Deliver waits until the
// batch is settled in each queue. If ctx ends first, Deliver returns the cause, and the
// spans stay in the queues.
func (p *Pipeline) Deliver(ctx context.Context, request []byte, sender string) (Outcome, error) {
	r := &receipt{settled: make(chan struct{})}
	taken, err := p.consume(request, sender, r)
	if err != nil || taken.Spans == 0 {
		return Outcome{Taken: taken}, err
	}
	select {
	case <-r.settled:
		r.outcome.Taken = taken
		return r.outcome, nil
	case <-ctx.Done():
		return Outcome{Taken: taken}, fmt.Errorf("wait for delivery: %w", context.Cause(ctx))
	}
}

// consume accepts a request. If r is not nil, the request becomes a batch of its own at
// once.
func (p *Pipeline) consume(request []byte, sender string, r *receipt) (t Taken, err error) {
	t.Spans, t.TooLarge, err = otlpwire.Check(request, p.cfg.MaxSpanBytes)
	if err != nil {
		return Taken{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	size := int64(len(request))
	if most, setting := p.consumer.largest(); size > most {
		return Taken{}, fmt.Errorf("%w: %d bytes, at most %d are accepted at once; send smaller requests or raise %s",
			ErrTooLarge, size, most, setting)
	}
	if t.Spans > maxRequestSpans {
		return Taken{}, fmt.Errorf("%w: %d spans, at most %d are accepted at once; send smaller requests", ErrTooLarge, t.Spans, maxRequestSpans)
	}
	if t.TooLarge > 0 {
		t.Spans -= t.TooLarge
		request = withoutLarge(request, p.cfg.MaxSpanBytes)
	}
	defer p.LogNotes()
	p.encoder.mu.Lock()
	defer p.encoder.mu.Unlock()
	return p.consumer.acceptLocked(request, t, &load{sender: sender, bytes: size}, r)
}

// maxRequestSpans bounds the spans of a request. A queue may cut a request into parts
// for its plugin, and each cut reads the whole request.
const maxRequestSpans = 1 << 16

// largest returns the size above which a request is never accepted, and the setting
// that bounds this size.
func (c *consumer) largest() (size int64, setting string) {
	size, setting = c.p.senders.most(), EnvQueueBytes
	if s := c.p.Spool; s.store != nil && s.senders.most() < size {
		size, setting = s.senders.most(), EnvSpoolBytes
	}
	return size, setting
}

// withoutLarge returns the request without its spans of more than most bytes.
func withoutLarge(request []byte, most int) []byte {
	r, err := otlpwire.Parse(request)
	if err != nil { // cannot happen, because Check has accepted the request
		return nil
	}
	defer r.Release()
	for s := range r.Spans() {
		if s.Size() > most {
			s.Drop()
		}
	}
	return r.AppendTo(nil)
}

func (c *consumer) acceptLocked(request []byte, t Taken, l *load, r *receipt) (Taken, error) {
	if c.closed {
		return Taken{}, ErrClosed
	}
	if t.Spans > 0 && !c.takeLocked(request, t.Spans, l, r != nil) {
		c.pushedBack += uint64(t.Spans + t.TooLarge)
		return Taken{}, ErrFull
	}
	c.ended += uint64(t.Spans + t.TooLarge)
	c.accepted += uint64(t.Spans)
	c.tooLarge += uint64(t.TooLarge)
	if cfg := &c.p.cfg; r != nil || c.spans >= cfg.BatchSpans || len(c.open) >= cfg.BatchBytes {
		c.sealLocked(r)
	} else if t.Spans > 0 {
		c.p.intake.notify(false)
	}
	return t, nil
}

// takeLocked adds a request to the open batch, and to the spool. If the request does not
// fit into the open batch, or must be a batch of its own (alone), takeLocked first seals
// the open batch. It returns false if too few bytes are free for the request.
func (c *consumer) takeLocked(request []byte, spans int, l *load, alone bool) bool {
	toSpool := c.p.Spool.writable()
	if !c.admit(l, toSpool) {
		return false
	}
	cfg := &c.p.cfg
	if alone || c.spans+spans > cfg.BatchSpans || len(c.open)+len(request) > cfg.BatchBytes || c.spans > 0 && c.storedLocked() != toSpool {
		c.sealLocked(nil)
	}
	if c.spans == 0 {
		c.origin = c.p.encoder.newOriginLocked()
	}
	if toSpool {
		if rec := c.p.Spool.append(c.origin, spans, request); rec != nil {
			c.origin.add(rec)
		} else if !c.moveLocked(l) {
			return false
		} else if c.storedLocked() { // a batch is either on disk or not, and only the earlier requests are
			c.sealLocked(nil)
			c.origin = c.p.encoder.newOriginLocked()
		}
	} else {
		c.p.Spool.miss()
	}
	c.appendLocked(request)
	c.spans += spans
	c.origin.loads = append(c.origin.loads, l)
	return true
}

// storedLocked reports whether the requests of the open batch are in the spool.
func (c *consumer) storedLocked() bool { return c.origin != nil && c.origin.records != nil }

// admit counts a load against the bound of the spool if toSpool is true, else against
// the bound of the memory. It returns false if the sender has used up its share.
func (c *consumer) admit(l *load, toSpool bool) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	l.senders = &c.p.senders
	if toSpool {
		l.senders = &c.p.Spool.senders
	}
	return l.senders.admit(l)
}

// moveLocked counts a load against the bound of the memory instead of the spool. It
// returns false if the sender has used up its share of the memory.
func (c *consumer) moveLocked(l *load) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	release([]*load{l})
	l.done, l.senders = false, &c.p.senders
	return l.senders.admit(l)
}

// appendLocked adds a request to the open batch. The first buffer of a batch is as large
// as the longest recent batch. If it is too small, the buffer doubles, up to the size of
// a full batch.
func (c *consumer) appendLocked(request []byte) {
	need := len(c.open) + len(request)
	if need > cap(c.open) {
		room := 2 * need
		if c.open == nil {
			room = c.last
		}
		larger := c.p.mem.arena(max(need, min(room, c.p.cfg.BatchBytes)))
		c.open = append(larger, c.open...)
		c.p.mem.charge(int64(cap(c.open)) - c.charged)
		c.charged = int64(cap(c.open))
	}
	c.open = append(c.open, request...)
}

// sealLocked makes a batch of the open requests and puts it on the queues. If r is not
// nil, it gets the outcome of the batch.
func (c *consumer) sealLocked(r *receipt) {
	if c.spans == 0 {
		return
	}
	c.last = max(len(c.open), c.last-c.last/8)
	b, o, spans := newBatch(c.p.mem, c.fitLocked()), c.origin, c.spans
	o.receipt = r
	c.addRest(b.charged)
	c.p.mem.charge(-c.charged)
	c.open, c.spans, c.origin, c.charged = nil, 0, nil, 0
	c.p.enqueue(b, o, spans)
}

// fitLocked returns the bytes of the open batch in a buffer without much unused
// capacity. A batch is charged with the capacity of its buffer, and requests are
// admitted by their length. So unused capacity could push accepted batches out of the
// memory.
func (c *consumer) fitLocked() []byte {
	if unused := cap(c.open) - len(c.open); unused <= len(c.open)/8 {
		return c.open
	}
	defer c.p.mem.recycle(c.open)
	return slices.Clone(c.open)
}

// statsLocked adds the counts of the consumer to s.
func (c *consumer) statsLocked(s *Stats) {
	s.Ended += c.ended
	s.Accepted += c.accepted
	if c.tooLarge > 0 {
		s.Refused[reasonTooLarge.String()] += c.tooLarge
	}
}

// addRest adds a load without a sender to the open batch, for the memory or the disk
// space that the batch uses beyond the bytes of its requests.
func (c *consumer) addRest(charged int64) {
	if c.storedLocked() {
		charged = c.origin.bytes
	}
	rest := &load{senders: c.origin.loads[0].senders, bytes: charged}
	for _, l := range c.origin.loads {
		rest.bytes -= l.bytes
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	rest.senders.add(rest)
	c.origin.loads = append(c.origin.loads, rest)
}

// receipt collects the outcome of one batch in all queues, for a call of Deliver. The
// pipeline's mutex guards it until settled is closed.
type receipt struct {
	left    uint64 // number of spans that are not settled; a span counts once for each queue
	outcome Outcome
	settled chan struct{}
}

// expect sets the number of spans to settle. It is called once, before add and pass.
func (r *receipt) expect(spans uint64) {
	if r == nil {
		return
	}
	if r.left = spans; spans == 0 {
		close(r.settled)
	}
}

// pass replaces spans that a processor has passed on by the same spans in the given
// number of next queues.
func (r *receipt) pass(spans uint64, queues int) {
	if r == nil {
		return
	}
	if r.left += spans*uint64(queues) - spans; r.left == 0 {
		close(r.settled)
	}
}

// add counts spans that are settled.
func (r *receipt) add(o Outcome) {
	if r == nil {
		return
	}
	r.outcome.add(o)
	if r.left -= o.settled(); r.left == 0 && o.settled() > 0 {
		close(r.settled)
	}
}
