package plugintest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// The checks of Export. For a processor plugin, Export means Process.

func checkReceived(t *trial) {
	p := t.ready(asHost)
	if _, visible := p.arrivedIDs(); !visible {
		t.skipWithout("WithReceived", "", "the suite cannot see the spans that arrive at the back end")
	}
	const batches = 5
	account := accounting{p: p}
	for i := range batches {
		account.deliver(t.batch(i + 1))
		t.step = fmt.Sprintf("as soon as batch %d is answered", i+1)
		account.balance()
		t.step = ""
	}
}

func checkUnconfigured(t *trial) {
	p := t.connect(asHost)
	answer, err := p.session.export(t.ctx, t.batch(1))
	if err != nil {
		t.fatalf("before Configure: %v; want FAILED_PRECONDITION", err)
	}
	if answer.Delivered() {
		t.fatalf("a batch is answered OK before Configure; want FAILED_PRECONDITION: it has no settings yet")
	}
	t.step = "after an Export that was refused"
	p.configure()
	p.lives("Configure")
}

func checkEmpty(t *trial) {
	p := t.ready(asHost)
	p.delivers(t.suite.numbers.of(nil))
	t.step = "a resource and a scope without spans"
	p.delivers(t.batch(0))
	p.lives("empty requests")
}

// largestSpan is the size in bytes of the largest span that a host can be configured to
// accept.
const largestSpan = 3 << 20

func checkMostBytes(t *trial) {
	const spans = 32
	p, about := t.ready(asHost), t.suite.about
	b := t.batch(min(spans, about.maxSpans()))
	p.delivers(b.pad(min(about.maxBytes(), len(b.ids)*largestSpan)))
}

func checkMostSpans(t *trial) {
	p, about := t.ready(asHost), t.suite.about
	size := proto.Size(t.batch(1).request)
	p.delivers(t.batch(max(1, min(about.maxSpans(), about.maxBytes()/size))))
}

func checkLargeSpan(t *trial) {
	p, most := t.ready(asHost), t.suite.about.maxBytes()
	answer := p.export(t.batch(1).pad(largestSpan))
	switch {
	case answer.Delivered():
	case largestSpan <= most:
		t.fatalf("a span of 3 MiB is answered %v; want OK, or a smaller max_batch_bytes: its declared limit is %d", answer, most)
	case answer.Retryable:
		t.fatalf("a span of 3 MiB, more than max_batch_bytes, is answered %v; want a final code: it does not get smaller", answer)
	}
	p.lives("a span of 3 MiB")
}

// encodeField returns the protobuf encoding of a field whose content is a text, bytes or
// an encoded message.
func encodeField(number int, content []byte) []byte {
	var w otlpwire.Writer
	w.Content(number, content)
	return w.Bytes()
}

// malformed returns byte sequences that are not a valid ExportTraceServiceRequest, each
// under a name for errors. good is a valid one.
func malformed(good []byte) map[string][]byte {
	inSpan := func(content []byte) []byte { return encodeField(1, encodeField(2, content)) }
	return map[string][]byte{
		"bytes of 0xff":         bytes.Repeat([]byte{0xff}, 16),
		"a batch cut short":     good[:len(good)*2/3],
		"a group without end":   {0x0b, 0x08, 0x01},
		"a span cut short":      inSpan([]byte{0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20}), // a length of 1<<40
		"a field of number 0":   encodeField(1, []byte{0x00, 0x00}),
		"a span of a wrong tag": inSpan([]byte{0x17}),
	}
}

func checkMalformed(t *trial) {
	p := t.ready(asHost)
	good, err := t.batch(3).encode()
	t.must(err)
	unread := true
	for name, data := range malformed(good) {
		t.step = name
		answer := p.export(batch{raw: data, id: "plugintest-malformed", attempt: 1})
		if answer.Retryable {
			t.errorf("answered %v; want a final code (INVALID_ARGUMENT): a host sends it again and again", answer)
		}
		unread = unread && answer.Delivered()
		p.lives(name)
	}
	if unread {
		t.skipf("it answers OK to bytes that are no OTLP: it does not read batches")
	}
}

// unknownField is an encoded field with a number that no message of OTLP or of the
// contract defines.
var unknownField = encodeField(1999, []byte("from the future"))

// walk calls f for a message and all messages inside of it. The path of a message has the
// type names from the outermost message to it, separated by dots.
func walk(m protoreflect.Message, parent string, f func(path string, m protoreflect.Message)) {
	path := parent + string(m.Descriptor().Name())
	f(path, m)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				walk(value.List().Get(i).Message(), path+".", f)
			}
		default:
			walk(value.Message(), path+".", f)
		}
		return true
	})
}

func checkUnknownFields(t *trial) {
	p := t.ready(asHost)
	b := t.batch(2)
	walk(b.request.ProtoReflect(), "", func(_ string, m protoreflect.Message) { m.SetUnknown(unknownField) })
	before, _ := p.arrived()
	answer := p.export(b)
	if !answer.Delivered() {
		t.fatalf("answered %v, want OK: hosts and SDKs are newer than plugins", answer)
	}
	if answer.filtered() > 0 || answer.Whole {
		return
	}
	after, _ := p.arrived()
	for _, encoded := range after[len(before):] {
		t.must(keepsUnknownFields(encoded))
	}
}

// keepsUnknownFields returns an error if unknownField is missing in all messages of one
// type in an encoded batch. It may be missing in some, because a processor may have added
// messages. It is not expected in attributes, because processors may replace them.
func keepsUnknownFields(encoded []byte) error {
	var data tracepb.TracesData
	if err := proto.Unmarshal(encoded, &data); err != nil {
		return fmt.Errorf("the batch of the exporter: %w", err)
	}
	kept := map[string]bool{}
	walk(data.ProtoReflect(), "", func(path string, m protoreflect.Message) {
		kept[path] = kept[path] || bytes.Contains(m.GetUnknown(), unknownField)
	})
	const inResource = "TracesData.ResourceSpans."
	const inSpan = inResource + "ScopeSpans.Span"
	for _, path := range []string{
		"TracesData", inResource + "Resource", inResource + "ScopeSpans", inResource + "ScopeSpans.InstrumentationScope",
		inSpan, inSpan + ".Event", inSpan + ".Link",
	} {
		if !kept[path] {
			return fmt.Errorf("a field of %s that OTLP does not have yet does not reach the exporter: a processor has lost it", path)
		}
	}
	return nil
}

func checkMetadata(t *trial) {
	p := t.ready(asHost)
	for _, test := range []struct {
		name   string
		change func(*batch)
	}{
		{"without id and attempt", func(b *batch) { b.id = "" }},
		{"with attempt 7", func(b *batch) { b.attempt = 7 }},
		{"with an id of 200 characters", func(b *batch) { b.id = strings.Repeat("i", 200) }},
		{"with metadata that it does not know", func(b *batch) { b.more = []string{"servetrace-from-the-future", "yes", "x-bin", "\x00\xff"} }},
	} {
		b := t.batch(1)
		test.change(&b)
		t.step = test.name
		p.delivers(b)
	}
}

func checkRepeated(t *trial) {
	p := t.ready(asHost)
	b := t.batch(2)
	p.delivers(b)
	b.attempt = 2
	t.step = "the same batch again, because after a crash a host cannot know if it was delivered"
	p.delivers(b)
}

func checkConcurrent(t *trial) {
	calls := t.suite.about.concurrency()
	if calls == 1 {
		t.skipf("it declares max_concurrency 1: a host makes one call after another")
	}
	account := accounting{p: t.ready(asHost)}
	t.step = fmt.Sprintf("%d calls at once", calls)
	t.atOnce(calls, func(int) { account.deliver(t.batch(5)) })
	account.balance()
}

func checkPermanent(t *trial) {
	expectAnswer(t, "a final code, for example INVALID_ARGUMENT or PERMISSION_DENIED",
		func(a Answer) bool { return !a.Delivered() && !a.Retryable })
}

func checkRetryable(t *trial) {
	expectAnswer(t, "UNAVAILABLE, or another code that OTLP retries (RESOURCE_EXHAUSTED only with RetryInfo)",
		func(a Answer) bool { return a.Retryable })
}

// cutter returns a context that ends after the given time: context.WithTimeout by a
// deadline, or cancelAfter by cancellation.
type cutter func(context.Context, time.Duration) (context.Context, context.CancelFunc)

// cancelAfter returns a context that is cancelled after some time. Unlike the context of
// context.WithTimeout, it has no deadline.
func cancelAfter(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(after, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// checkCut makes concurrent calls that are cut off after a few milliseconds, and expects
// that the plugin still works. If the author has given the input Stuck, it also expects
// that a hanging call returns when it is cut off.
func checkCut(t *trial, cut cutter) {
	const most, spans, size = 8, 64, 1 << 20
	p, about := t.ready(asHost), t.suite.about
	t.atOnce(min(most, about.concurrency()), func(i int) {
		call, cancel := cut(t.ctx, time.Duration(i)*2*time.Millisecond)
		defer cancel()
		b := t.batch(min(spans, about.maxSpans())).pad(min(size, about.maxBytes()))
		_, _ = p.session.export(call, b) // the call may be answered before it is cut off
	})
	p.lives("calls that were cut off")
	if hasInput(t) {
		expectStuckCallEnds(p, cut)
	}
}

// expectStuckCallEnds expects that a hanging call returns when it is cut off. The suite
// notices this by Shutdown, which waits for all calls.
func expectStuckCallEnds(p *subject, cut cutter) {
	t := p.t
	b, restore := provoke(t)
	defer restore()
	call, cancel := cut(t.ctx, t.prompt()/10)
	defer cancel()
	answer, err := p.session.export(call, b)
	if err == nil && answer.Delivered() {
		t.fatalf("input %q: answered %v before it was cut off; want no answer", Stuck, answer)
	}
	restore()
	p.lives(fmt.Sprintf("input %q, which was cut off", Stuck))
	if t.suite.about.plain {
		return
	}
	prompt, cancel := context.WithTimeout(t.ctx, t.prompt())
	defer cancel()
	if _, err := p.session.shutdown(prompt); err != nil {
		t.fatalf("Shutdown after input %q, which was cut off: %v; want the call to return when its context ends", Stuck, err)
	}
}
