package plugintest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// books count numbered spans that a session exports, and compare them with what
// arrived. Safe for concurrent use.
type books struct {
	trial   *trial
	session *session

	mu   sync.Mutex
	sent []entry
}

// entry is a batch that was answered OK.
type entry struct {
	ids []string // of its spans
	// filtered must not arrive, rejected need not.
	filtered, rejected int
}

func newBooks(t *trial, s *session) *books { return &books{trial: t, session: s} }

// export sends a batch that must be answered OK, and books it.
func (k *books) export(ctx context.Context, b batch) error {
	answer, err := k.session.export(ctx, b)
	if err == nil && !answer.Delivered() {
		err = fmt.Errorf("Export of %d spans: answered %v, want OK", b.spans, answer)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = append(k.sent, entry{b.ids, answer.filtered(), max(0, answer.Rejected)})
	return nil
}

var errNobodySees = errors.New("nobody sees what arrives")

// arrived says how often each span of this run arrived.
func (k *books) arrived() (map[string]int, error) {
	var ids []string
	tapped, inProcess := k.session.plugin.(*inner)
	switch {
	case k.trial.received != nil:
		list, err := k.trial.received()
		if err != nil {
			return nil, fmt.Errorf("WithReceived: %w", err)
		}
		ids = list
	case inProcess:
		for _, encoded := range tapped.tap.seen() {
			var data tracepb.TracesData
			if err := proto.Unmarshal(encoded, &data); err != nil {
				continue // export.malformed's, on a plugin that rules share: nobody's spans
			}
			eachSpan(data.GetResourceSpans(), func(span *tracepb.Span) { ids = append(ids, hex.EncodeToString(span.GetSpanId())) })
		}
	default:
		return nil, errNobodySees
	}
	counts := map[string]int{}
	for _, id := range ids {
		counts[id]++
	}
	return counts, nil
}

// balance compares what was sent with what arrived; where nobody sees that,
// the answers have to do.
func (k *books) balance() error {
	arrived, err := k.arrived()
	if errors.Is(err, errNobodySees) {
		return nil
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, e := range k.sent {
		errs = append(errs, e.compare(arrived))
	}
	return firstErrors(errs)
}

// compare holds the answer to a batch against what arrived.
func (e entry) compare(arrived map[string]int) error {
	var lost, twice []string
	for _, id := range e.ids {
		switch n := arrived[id]; {
		case n == 0:
			lost = append(lost, id)
		case n > 1:
			twice = append(twice, id)
		}
	}
	var errs []error
	switch {
	case len(lost) > e.filtered+e.rejected:
		errs = append(errs, fmt.Errorf("%d of %d spans answered OK are not there, %d of which it said it had filtered or rejected; the first is %s", len(lost), len(e.ids), e.filtered+e.rejected, lost[0]))
	case len(lost) < e.filtered:
		errs = append(errs, fmt.Errorf("%d of %d spans are there, of which it said it had filtered %d: count each batch for itself", len(e.ids)-len(lost), len(e.ids), e.filtered))
	}
	if len(twice) > 0 {
		errs = append(errs, fmt.Errorf("%d of %d spans, each sent once, are there several times; the first is %s", len(twice), len(e.ids), twice[0]))
	}
	return errors.Join(errs...)
}

func checkReceived(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	books := newBooks(t, s)
	if _, err := books.arrived(); errors.Is(err, errNobodySees) {
		return skipWithout("WithReceived", "", "the suite cannot see what has arrived at the back end")
	}
	const batches = 5
	for i := range batches {
		if err := books.export(ctx, t.numbers.batch(i+1)); err != nil {
			return err
		}
		if err := books.balance(); err != nil {
			return fmt.Errorf("as soon as batch %d is answered: %w", i+1, err)
		}
	}
	return nil
}
