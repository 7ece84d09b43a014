package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// requestOf encodes a request of n spans with unique names, each with an attribute of
// this many bytes.
func requestOf(t *testing.T, prefix string, n, size int) []byte {
	t.Helper()
	data, err := encodeRequest(prefix, n, size)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func encodeRequest(prefix string, n, size int) ([]byte, error) {
	ss := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "sender"}}
	for i := range n {
		ss.Spans = append(ss.Spans, &tracepb.Span{
			TraceId: bytes.Repeat([]byte{1}, 16), SpanId: bytes.Repeat([]byte{2}, 8), Name: fmt.Sprintf("%s-%d", prefix, i),
			Attributes: []*commonpb.KeyValue{{Key: "filler", Value: &commonpb.AnyValue{
				Value: &commonpb.AnyValue_StringValue{StringValue: strings.Repeat("x", size)},
			}}},
		})
	}
	return proto.Marshal(&coltracepb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{ss}}},
	})
}

func TestConsumedSpansArriveBesideEndedSpans(t *testing.T) {
	first, second := testplugin.Install(t, "record"), testplugin.Install(t, "small:3")
	r := startHost(t, nil, first, second)
	for i := range 20 {
		r.spans(fmt.Sprintf("own%d", i), 1)
		request := requestOf(t, fmt.Sprintf("sent%d", i), 7, 10)
		taken, err := r.Consume(request, "me")
		if want := (host.Taken{Spans: 7}); taken != want || err != nil {
			t.Fatalf("Consume: %+v, %v; want %+v", taken, err, want)
		}
		clear(request) // the Host has a copy
	}
	r.flush()
	for i, path := range []string{first, second} {
		r.wantCounts(i, map[string]uint64{"delivered": 160})
		for k := range 20 {
			wantOnce(t, path, fmt.Sprintf("own%d", k), 1)
			wantOnce(t, path, fmt.Sprintf("sent%d", k), 7)
		}
	}
	if s := r.Stats(); s.Ended != 160 || s.PushedBack != 0 {
		t.Errorf("%d spans ended, %d pushed back, want 160 and none", s.Ended, s.PushedBack)
	}
}

func TestConsumedSpansAreSealedByAge(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, nil, path)
	if _, err := r.Consume(requestOf(t, "s", 1, 1), ""); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "the spans", func() bool { return r.Stats().Exporters[0].Delivered == 1 })
}

func TestConsumeRefuses(t *testing.T) {
	r := startHost(t, func(c *host.Config) { c.QueueBytes, c.MaxSpanBytes = 1<<20, 10_000 }, testplugin.Install(t, "record"))
	off, err := host.New(host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	good := requestOf(t, "s", 1, 1)
	if _, err := off.Consume(good, ""); !errors.Is(err, host.ErrClosed) {
		t.Errorf("no plugins: %v, want ErrClosed", err)
	}
	if _, err := r.Consume(good[:len(good)-1], ""); !errors.Is(err, host.ErrMalformed) {
		t.Errorf("a request cut short: %v, want ErrMalformed", err)
	}
	if _, err := r.Consume(requestOf(t, "s", 60, 9000), ""); !errors.Is(err, host.ErrTooLarge) || !strings.Contains(err.Error(), host.EnvQueueBytes) {
		t.Errorf("a request of 540 kB: %v, want ErrTooLarge and the setting", err)
	}
	many := bytes.Repeat([]byte{0x0a, 4, 0x12, 2, 0x12, 0}, 1<<16+1)
	if _, err := r.Consume(many, ""); !errors.Is(err, host.ErrTooLarge) || !strings.Contains(err.Error(), "65537 spans, at most 65536") {
		t.Errorf("a request of 65,537 spans: %v, want ErrTooLarge and the limit", err)
	}
	mixed := append(requestOf(t, "large", 2, 10_000), requestOf(t, "small", 3, 10)...)
	if taken, err := r.Consume(mixed, ""); taken != (host.Taken{Spans: 3, TooLarge: 2}) || err != nil {
		t.Errorf("large and small spans: %+v, %v", taken, err)
	}
	if taken, err := r.Consume(requestOf(t, "large", 2, 10_000), ""); taken != (host.Taken{TooLarge: 2}) || err != nil {
		t.Errorf("only large spans: %+v, %v", taken, err)
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 3})
	if s := r.Stats(); s.Ended != 7 || s.Refused["too_large"] != 4 || s.PushedBack != 0 {
		t.Errorf("%d spans ended, refused %v, %d pushed back; want 7, 4 too large, and none", s.Ended, s.Refused, s.PushedBack)
	}
	_ = r.Shutdown(t.Context())
	if _, err := r.Consume(good, ""); !errors.Is(err, host.ErrClosed) {
		t.Errorf("after Shutdown: %v, want ErrClosed", err)
	}
}

// TestConsumeRefusesWhatNeverFitsTheSpool: a request for which the spool never has room is
// refused for good. Else its sender would send it for ever.
func TestConsumeRefusesWhatNeverFitsTheSpool(t *testing.T) {
	r := startHost(t, func(c *host.Config) { c.SpoolDir, c.SpoolBytes = t.TempDir(), 8<<20 }, testplugin.Install(t, "record"))
	request := requestOf(t, "s", 7, 900_000)
	if _, err := r.Consume(request, ""); !errors.Is(err, host.ErrTooLarge) || !strings.Contains(err.Error(), host.EnvSpoolBytes) {
		t.Errorf("a request of %d bytes: %v, want ErrTooLarge and the setting", len(request), err)
	}
}

// TestRequestsThatMissTheSpoolAreCounted: every request counts that is in memory only,
// also in the second after a failure, in which no write is tried.
func TestRequestsThatMissTheSpoolAreCounted(t *testing.T) {
	folder := file(t, "spool", "")
	r := startHost(t, func(c *host.Config) { c.SpoolDir = folder }, testplugin.Install(t, "record"))
	for i := range 5 {
		if _, err := r.Consume(requestOf(t, fmt.Sprint("s", i), 2, 10), ""); err != nil {
			t.Fatal(err)
		}
	}
	r.flush()
	if s := r.Stats().Spool; s.Missed != 5 || !s.Failing {
		t.Errorf("%+v, want 5 missed requests", s)
	}
}

// TestFileAboveALoweredBoundIsSent: the spool of an earlier process has a file that is
// larger than the new bound. Its spans arrive, and the file is removed.
func TestFileAboveALoweredBoundIsSent(t *testing.T) {
	dir, path := t.TempDir(), testplugin.Install(t, "record")
	first := startHost(t, func(c *host.Config) { c.SpoolDir = dir }, filepath.Join(dir, "missing"))
	for i := range 10 {
		if _, err := first.Consume(requestOf(t, fmt.Sprintf("s%d", i), 1, 900_000), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.spool2"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v; want one", files, err)
	}
	const bound = 8 << 20
	if info, err := os.Stat(files[0]); err != nil || info.Size() <= bound {
		t.Fatalf("%v, %v; want a file above the bound", info, err)
	}
	second := startHost(t, func(c *host.Config) { c.SpoolDir, c.SpoolBytes = dir, bound }, path)
	second.waitReady(0)
	second.spans("own", 1)
	second.flush()
	second.wantCounts(0, map[string]uint64{"delivered": 11})
	for i := range 10 {
		wantOnce(t, path, fmt.Sprintf("s%d", i), 1)
	}
	if _, err := os.Stat(files[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the first process is still there: %v", err)
	}
}

// TestConsumePushesBackAndDropsNothing starts the plugin late. Until then, requests are
// pushed back before any batch is dropped, and a greedy sender leaves room for others. All
// that was accepted arrives in the end.
func TestConsumePushesBackAndDropsNothing(t *testing.T) {
	r := makeHost(t, func(c *host.Config) { c.QueueBytes = 1 << 20 }, testplugin.Install(t, "record"))
	fill := func(sender string) (accepted int) {
		for {
			_, err := r.Consume(requestOf(t, sender, 3, 300), sender)
			if err != nil {
				if !errors.Is(err, host.ErrFull) {
					t.Fatalf("error %v, want ErrFull", err)
				}
				return accepted
			}
			accepted += 3
		}
	}
	greedy := fill("greedy")
	second, third := fill("second"), fill("third")
	if second < greedy/10 || third < greedy/50 {
		t.Errorf("accepted %d, %d and %d spans: the first sender leaves too little", greedy, second, third)
	}
	if greedy < 1000 {
		t.Errorf("a sender alone gets room for %d spans of 330 bytes in 1 MiB, want at least 1000", greedy)
	}
	r.balanced()
	s := r.Stats()
	if x := s.Exporters[0]; len(x.Dropped) != 0 || x.Waiting != uint64(greedy+second+third) {
		t.Errorf("dropped %v, waiting %d; want nothing and %d", x.Dropped, x.Waiting, greedy+second+third)
	}
	if s.PushedBack != 9 {
		t.Errorf("%d spans pushed back, want 9", s.PushedBack)
	}
	if s.Bytes > s.LimitBytes {
		t.Errorf("%d bytes in use, the limit is %d", s.Bytes, s.LimitBytes)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": uint64(greedy + second + third)})
	if again := fill("greedy"); again < greedy/2 {
		t.Errorf("%d spans are accepted after the delivery, want about %d again", again, greedy)
	}
}

// TestOneDeadExporterPushesNothingBack has two plugins, one of which takes nothing.
func TestOneDeadExporterPushesNothingBack(t *testing.T) {
	good := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) { c.QueueBytes = 1 << 20 }, good, testplugin.Install(t, "hang"))
	sent := 0
	for range 100 {
		_, err := r.Deliver(withTimeout(t, time.Millisecond), requestOf(t, "s", 10, 3000), "me")
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Deliver: %v, want it accepted", err)
		}
		sent += 10
		testplugin.WaitFor(t, "the spans", func() bool { return r.Stats().Exporters[0].Delivered == uint64(sent) })
	}
	if s := r.Stats(); s.Exporters[1].Dropped["queue_full"] == 0 || s.PushedBack != 0 {
		t.Errorf("dropped %v, %d pushed back; want drops of the dead exporter alone", s.Exporters[1].Dropped, s.PushedBack)
	}
	r.balanced()
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestDeliverReturnsTheOutcomeOfAllExporters(t *testing.T) {
	r := startHost(t, nil,
		testplugin.Install(t, "record"), testplugin.Install(t, "partial:2"), testplugin.Install(t, "filter:s-1"),
		testplugin.Install(t, "permanent"), testplugin.Install(t, "small:3"))
	got, err := r.Deliver(withTimeout(t, time.Minute), requestOf(t, "s", 10, 10), "me")
	want := host.Outcome{Taken: host.Taken{Spans: 10}, Delivered: 10 + 8 + 9 + 10, Rejected: 2 + 10, Filtered: 1}
	if got != want || err != nil {
		t.Errorf("Deliver: %+v, %v; want %+v", got, err, want)
	}
}

func TestDeliverSurvivesAKillOfThePlugin(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, nil, path)
	r.waitReady(0)
	const senders, each = 4, 50
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for k := range each {
				o, err := r.Deliver(withTimeout(t, time.Minute), requestOf(t, fmt.Sprintf("s%d.%d", i, k), 5, 10), fmt.Sprint(i))
				if err != nil || o.Delivered != 5 {
					t.Errorf("Deliver: %+v, %v; want 5 spans delivered", o, err)
				}
			}
		})
	}
	r.killAndAwait()
	all.Wait()
	r.wantCounts(0, map[string]uint64{"delivered": senders * each * 5})
	if got := len(testplugin.Spans(t, path)); got != senders*each*5 {
		t.Errorf("%d different spans arrived, want %d", got, senders*each*5)
	}
}

func TestDeliverKeepsTheSpansWhenTheSenderGoes(t *testing.T) {
	path := testplugin.Install(t, "slow:300ms")
	r := startHost(t, nil, path)
	cause := errors.New("the sender has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	o, err := r.Deliver(ctx, requestOf(t, "s", 4, 10), "me")
	if !errors.Is(err, cause) || o.Spans != 4 {
		t.Errorf("Deliver: %+v, %v; want the cause and 4 spans", o, err)
	}
	r.flush()
	wantOnce(t, path, "s", 4)
}

func TestDeliverEndsWithTheHost(t *testing.T) {
	r := startHost(t, func(c *host.Config) { c.StopTimeout = 300 * time.Millisecond }, testplugin.Install(t, "hang"))
	outcome := make(chan host.Outcome, 1)
	go func() {
		o, err := r.Deliver(context.Background(), requestOf(t, "s", 4, 10), "me")
		if err != nil {
			t.Errorf("Deliver: %v", err)
		}
		outcome <- o
	}()
	testplugin.WaitFor(t, "the spans", func() bool { return r.Stats().Accepted == 4 })
	_ = r.Shutdown(context.Background())
	if o := <-outcome; o.Dropped != 4 {
		t.Errorf("%+v, want 4 spans dropped", o)
	}
}
