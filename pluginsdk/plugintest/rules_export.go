package plugintest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// exportRules are about Exports that end in OK, and bytes that are no spans.
func exportRules() []rule {
	return []rule{
		{
			id: "export.delivered", title: "A batch of spans is answered OK",
			after: configured, check: func(ctx context.Context, t *trial) error { return checkWorks(ctx, t, how{}) },
		},
		{
			id: "export.received", title: "An OK answer means delivered: the spans are there when it comes, each once",
			after: delivered, shares: true, check: checkReceived,
		},
		{
			id: "export.unconfigured", title: "Export before Configure is refused, and Configure is taken all the same",
			needs: lifecycle, after: delivered, check: checkUnconfigured,
		},
		{
			id: "export.empty", title: "A request without spans is answered OK",
			after: delivered, shares: true, check: checkEmpty,
		},
		{
			id: "export.most-bytes", title: "A batch of as many bytes as it declares, or of 4 MiB less 64 KiB, is answered OK",
			after: delivered, shares: true, check: checkMostBytes,
		},
		{
			id: "export.most-spans", title: "A batch of as many spans as it declares, or of 2048, is answered OK",
			after: delivered, shares: true, check: checkMostSpans,
		},
		{
			id: "export.large-span", title: "A span of 3 MiB is answered OK, or for good where that is more than it declares to take",
			after: delivered, shares: true, check: checkLargeSpan,
		},
		{
			id: "export.malformed", title: "Bytes that are no OTLP are answered with a final error, and the plugin lives on",
			after: delivered, shares: true, check: checkMalformed,
		},
		{
			id: "export.unknown-fields", title: "Spans with fields that OTLP does not have yet are answered OK; in process: the exporter sees the fields",
			after: delivered, shares: true, check: checkUnknownFields,
		},
		{
			id: "export.metadata", title: "A batch is taken with id and attempt, without them, and with metadata it does not know",
			after: delivered, shares: true, check: checkMetadata,
		},
		{
			id: "export.repeated", title: "A batch that comes again, with the same id and attempt 2, is answered OK",
			after: delivered, shares: true, check: checkRepeated,
		},
		{
			id: "export.concurrent", title: "As many calls at once as it declares, or 64, are all answered OK",
			after: slices.Concat(delivered, []string{"export.received"}), shares: true, check: checkConcurrent,
		},
	}
}

// failureRules are about Exports that do not end in OK.
func failureRules() []rule {
	return []rule{
		{
			id: "export.permanent", title: "What must not be sent again is answered with a final code",
			input: Permanent, after: delivered, shares: true, check: checkPermanent,
		},
		{
			id: "export.retryable", title: "What may be sent again is answered with a code that OTLP retries",
			input: Retryable, after: delivered, shares: true, check: checkRetryable,
		},
		{
			id: "export.cancelled", title: "A cancelled call ends, and the plugin lives on",
			input: Stuck, after: delivered, check: func(ctx context.Context, t *trial) error {
				return checkCut(ctx, t, func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancel(ctx)
					timer := time.AfterFunc(after, cancel)
					return ctx, func() { timer.Stop(); cancel() }
				})
			},
		},
		{
			id: "export.deadline", title: "A call that is over its deadline ends, and the plugin lives on",
			input: Stuck, after: delivered, check: func(ctx context.Context, t *trial) error { return checkCut(ctx, t, context.WithTimeout) },
		},
	}
}

// exportLastRules are about what all rules saw of the plugin's answers.
func exportLastRules() []rule {
	return []rule{
		{
			id: "export.answers", title: "Every OK answer is an ExportTraceServiceResponse",
			after: delivered, last: true, check: func(_ context.Context, t *trial) error {
				t.watch.mu.Lock()
				defer t.watch.mu.Unlock()
				return t.watch.unread.err()
			},
		},
		{
			id: "export.partial", title: "A partial success rejects no more spans than the batch has",
			input: Partial, after: delivered, last: true, shares: true, check: func(ctx context.Context, t *trial) error {
				return checkSeen(ctx, t, Partial, func(a Answer) bool { return a.Rejected > 0 },
					func(w *watch) (int, faults) { return w.partials, w.partialFaults })
			},
		},
		{
			id: "export.filtered", title: "Filtered spans are named as PROCESSOR=COUNT in trailers, and are no more than the batch has",
			input: Filtered, after: delivered, last: true, shares: true, check: func(ctx context.Context, t *trial) error {
				return checkSeen(ctx, t, Filtered, func(a Answer) bool { return a.filtered() > 0 },
					func(w *watch) (int, faults) { return w.filters, w.filterFaults })
			},
		},
	}
}

// lives holds a plugin to taking batches still.
func (s *session) lives(ctx context.Context, t *trial, after string) error {
	if err := s.mustExport(ctx, t.numbers.batch(1)); err != nil {
		return fmt.Errorf("after %s: %w", after, err)
	}
	return nil
}

func checkUnconfigured(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	answer, err := s.export(ctx, t.numbers.batch(1))
	if err != nil {
		return fmt.Errorf("before Configure: %w; want FAILED_PRECONDITION", err)
	}
	if answer.Delivered() {
		return errors.New("a batch is answered OK before Configure; want FAILED_PRECONDITION: it has no settings yet")
	}
	if err := s.configureWell(ctx, t.about.response.GetEnvPatterns()); err != nil {
		return fmt.Errorf("after an Export that was refused: %w", err)
	}
	return s.lives(ctx, t, "Configure")
}

func checkEmpty(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.mustExport(ctx, t.numbers.of(nil)); err != nil {
		return err
	}
	b := t.numbers.batch(1)
	request := b.request()
	request.GetResourceSpans()[0].GetScopeSpans()[0].Spans = nil
	if err := s.mustExport(ctx, t.numbers.of(request)); err != nil {
		return fmt.Errorf("a resource and a scope without spans: %w", err)
	}
	return s.lives(ctx, t, "empty requests")
}

// largestSpan is the size of the largest span that a host can be set to take.
const largestSpan = 3 << 20

func checkMostBytes(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	const spans = 32
	b := t.numbers.batch(min(spans, t.about.maxSpans()))
	return s.mustExport(ctx, b.padded(min(t.about.maxBytes(), b.spans*largestSpan)))
}

func checkMostSpans(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	const usual = 2048 // the default of SERVE_TRACING_BATCH_SPANS
	spans := usual
	if t.about.response.GetLimits().GetMaxBatchSpans() > 0 {
		spans = t.about.maxSpans()
	}
	one := t.numbers.batch(1)
	return s.mustExport(ctx, t.numbers.batch(max(1, min(spans, t.about.maxBytes()/len(one.data)))))
}

func checkLargeSpan(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	answer, err := s.export(ctx, t.numbers.batch(1).padded(largestSpan))
	switch {
	case err != nil:
		return err
	case answer.Delivered():
	case largestSpan <= t.about.maxBytes():
		return fmt.Errorf("a span of 3 MiB is answered %v; want OK, or a smaller max_batch_bytes: its declared limit is %d", answer, t.about.maxBytes())
	case answer.Retryable:
		return fmt.Errorf("a span of 3 MiB, more than max_batch_bytes, is answered %v; want a final code: it does not get smaller", answer)
	}
	return s.lives(ctx, t, "a span of 3 MiB")
}

// malformed are bytes that are no ExportTraceServiceRequest.
func malformed(good []byte) map[string][]byte {
	span := protowire.AppendTag(nil, 2, protowire.BytesType)
	span = protowire.AppendVarint(span, 1<<40) // a length beyond the end
	wrap := func(inner []byte, number protowire.Number) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
	}
	return map[string][]byte{
		"bytes of 0xff":         []byte(strings.Repeat("\xff", 16)),
		"a batch cut short":     good[:len(good)*2/3],
		"a group without end":   {0x0b, 0x08, 0x01},
		"a span cut short":      wrap(wrap(wrap(span, 2), 2), 1),
		"a field of number 0":   wrap([]byte{0x00, 0x00}, 1),
		"a span of a wrong tag": wrap(wrap([]byte{0x17}, 2), 1),
	}
}

func checkMalformed(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	var errs []error
	refused := 0
	for name, data := range malformed(t.numbers.batch(3).data) {
		answer, err := s.export(ctx, batch{data: data, id: "plugintest-malformed", attempt: 1})
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case answer.Retryable:
			errs = append(errs, fmt.Errorf("%s: answered %v; want a final code (INVALID_ARGUMENT): a host sends it again and again", name, answer))
		case !answer.Delivered():
			refused++
		}
		if err := s.lives(ctx, t, name); err != nil {
			return err
		}
	}
	if len(errs) == 0 && refused == 0 {
		return skipf("it answers OK to bytes that are no OTLP: it passes batches on, or away, unread")
	}
	return errors.Join(errs...)
}

func checkMetadata(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	for _, test := range []struct {
		name   string
		change func(*batch)
	}{
		{"without id and attempt", func(b *batch) { b.id = "" }},
		{"with attempt 7", func(b *batch) { b.attempt = 7 }},
		{"with an id of 200 characters", func(b *batch) { b.id = strings.Repeat("i", 200) }},
		{"with metadata that it does not know", func(b *batch) { b.more = []string{"servetrace-from-the-future", "yes", "x-bin", "\x00\xff"} }},
	} {
		b := t.numbers.batch(1)
		test.change(&b)
		if err := s.mustExport(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", test.name, err)
		}
	}
	return nil
}

func checkRepeated(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	b := t.numbers.batch(2)
	if err := s.mustExport(ctx, b); err != nil {
		return err
	}
	b.attempt = 2
	if err := s.mustExport(ctx, b); err != nil {
		return fmt.Errorf("the same batch again: %w: after a crash a host cannot know what was delivered", err)
	}
	return nil
}

func checkConcurrent(ctx context.Context, t *trial) error {
	calls := t.about.concurrency()
	if calls == 1 {
		return skipf("it declares max_concurrency 1: a host makes one call after another")
	}
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	books := newBooks(t, s)
	if err := atOnce(calls, func(int) error { return books.export(ctx, t.numbers.batch(5)) }); err != nil {
		return fmt.Errorf("%d calls at once: %w", calls, err)
	}
	return books.balance()
}

func checkPermanent(ctx context.Context, t *trial) error {
	return checkInput(ctx, t, Permanent, func(a Answer) error {
		if a.Delivered() || a.Retryable {
			return fmt.Errorf("answered %v; want a final code, INVALID_ARGUMENT or PERMISSION_DENIED say", a)
		}
		return nil
	})
}

func checkRetryable(ctx context.Context, t *trial) error {
	return checkInput(ctx, t, Retryable, func(a Answer) error {
		if !a.Retryable {
			return fmt.Errorf("answered %v; want UNAVAILABLE, or another code that OTLP retries (RESOURCE_EXHAUSTED only with RetryInfo)", a)
		}
		return nil
	})
}

// can reports whether the author has said how to provoke an input.
func (t *trial) can(input Input) bool { return t.inputs[input] != nil || t.states[input] != nil }

func skipWithoutInput(input Input) error {
	return skipWithout("WithInput or WithState", "", "the suite does not know how to provoke an answer of kind %q", input)
}

// provoke returns a batch for an input, with the back end in the state for it. The
// caller must call restore once, which puts the back end back.
func (t *trial) provoke(input Input) (b batch, restore func() error, err error) {
	b, restore = t.numbers.batch(1), func() error { return nil }
	if request := t.inputs[input]; request != nil {
		b = t.numbers.of(request)
	}
	if enter := t.states[input]; enter != nil {
		if restore, err = enter(); err != nil {
			return b, nil, fmt.Errorf("WithState %q: %w", input, err)
		}
	}
	return b, restore, nil
}

// checkInput provokes an input, judges the answer, restores the back end, and wants
// the plugin to live on.
func checkInput(ctx context.Context, t *trial, input Input, judge func(Answer) error) error {
	if !t.can(input) {
		return skipWithoutInput(input)
	}
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	b, restore, err := t.provoke(input)
	if err != nil {
		return err
	}
	answer, err := s.export(ctx, b)
	if err := errors.Join(err, restore()); err != nil {
		return fmt.Errorf("input %q: %w", input, err)
	}
	if err := judge(answer); err != nil {
		return fmt.Errorf("input %q: %w", input, err)
	}
	return s.lives(ctx, t, fmt.Sprintf("input %q", input))
}

// checkSeen judges what all rules saw of something that a plugin may do, after
// having made it do that where the author says how.
func checkSeen(ctx context.Context, t *trial, input Input, done func(Answer) bool, seen func(*watch) (int, faults)) error {
	if t.can(input) {
		if err := checkInput(ctx, t, input, func(a Answer) error {
			if !a.Delivered() || !done(a) {
				return fmt.Errorf("answered %v; want OK with %s spans", a, input)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	t.watch.mu.Lock()
	defer t.watch.mu.Unlock()
	count, faults := seen(&t.watch)
	if count == 0 && len(faults) == 0 {
		return skipWithout("WithInput or WithState", "", "none of %d answers had any", t.watch.answers)
	}
	return faults.err()
}

// checkCut makes calls that are cut off, some at once, and wants the plugin to
// live on. With a Stuck input it must also have let go of the call.
func checkCut(ctx context.Context, t *trial, cut func(context.Context, time.Duration) (context.Context, context.CancelFunc)) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	calls := min(8, t.about.concurrency())
	_ = atOnce(calls, func(i int) error {
		call, cancel := cut(ctx, time.Duration(i)*2*time.Millisecond)
		defer cancel()
		b := t.numbers.batch(min(64, t.about.maxSpans()))
		_, err := s.export(call, b.padded(min(1<<20, t.about.maxBytes())))
		return err // some are cut, some are not
	})
	if err := s.lives(ctx, t, "calls that were cut off"); err != nil {
		return err
	}
	if !t.can(Stuck) {
		return nil
	}
	b, restore, err := t.provoke(Stuck)
	if err != nil {
		return err
	}
	call, cancel := cut(ctx, t.prompt()/10)
	defer cancel()
	answer, err := s.export(call, b)
	if restored := restore(); restored != nil {
		return fmt.Errorf("input %q: %w", Stuck, restored)
	}
	if err == nil && answer.Delivered() {
		return fmt.Errorf("input %q: answered %v before it was cut off; want no answer", Stuck, answer)
	}
	return s.letsGo(ctx, t)
}

// letsGo holds a plugin to having ended all calls: it can be shut down.
func (s *session) letsGo(ctx context.Context, t *trial) error {
	if err := s.lives(ctx, t, fmt.Sprintf("input %q, which was cut off", Stuck)); err != nil || t.about.plain {
		return err
	}
	call, cancel := context.WithTimeout(ctx, t.prompt())
	defer cancel()
	if _, err := s.shutdown(call); err != nil {
		return fmt.Errorf("Shutdown after input %q, which was cut off: %w; want the call to return when its context ends", Stuck, err)
	}
	return nil
}
