package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "batching", main) }

// start starts the service with the console plugin, and the operators' listener,
// whose URL is the second.
func start(t *testing.T, args ...string) (s *hellotest.Service, admin string) {
	t.Helper()
	s = servicetest.Start(t, "batching", args, "SERVE_ADMIN_PORT=0")
	return s, s.Await(s.Log, `admin=(http://[0-9.:]+)`, 1)[0]
}

// traceparent returns the header of a caller with the letter a to f in all digits of its
// trace id.
func traceparent(letter, flags string) string {
	return "00-" + strings.Repeat(letter, 32) + "-00f067aa0ba902b7-" + flags
}

// ask sends a text, as part of the caller's trace, and gives the answer.
func ask(ctx context.Context, url, text, traceparent string) (string, error) {
	in, err := json.Marshal(Text{text})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(in)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Traceparent", traceparent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	out, err := io.ReadAll(resp.Body)
	return string(out), errors.Join(err, resp.Body.Close())
}

// waiting waits until so many requests wait for a batch.
func waiting(t *testing.T, admin, n string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(hellotest.Patience)
	for {
		_, metrics := servicetest.Do(t, admin+"/metrics", "")
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "serve_batch_queue_length{") && strings.HasSuffix(line, "} "+n+"\n") {
				return
			}
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for %s requests that wait:\n%s", n, metrics)
		}
	}
}

// letter returns the letter of the span's trace.
func letter(id servicetest.SpanID) string { return strings.TrimPrefix(id.TraceID, "0x")[:1] }

// batch is a batch's span, with letters for traces.
type batch struct {
	Trace string // its own
	Links string // the others, in order
	Work  string // the user's span inside, with its trace
}

// batches reads the output of the console plugin, and returns the batches in the order in
// which they began, and the number of spans.
func batches(t *testing.T, text string) (list []batch, spans int) {
	t.Helper()
	all := servicetest.Spans(t, text)
	slices.SortFunc(all, func(a, b servicetest.Span) int { return a.Start.Compare(b.Start) })
	byID := map[string]servicetest.Span{}
	for _, s := range all {
		byID[s.Context.SpanID] = s
	}
	for _, s := range all {
		if !strings.HasPrefix(s.Name, "batch_execute ") {
			continue
		}
		b := batch{Trace: letter(s.Context)}
		if parent := byID[s.ParentID]; parent.Name != "replica_handle_request Model __call__" || letter(parent.Context) != b.Trace {
			t.Errorf("the batch's parent is %q of trace %s", parent.Name, parent.Context.TraceID)
		}
		for _, l := range s.Links {
			b.Links += letter(l.Context)
			if to := byID[l.Context.SpanID]; to.Name != "replica_handle_request Model __call__" {
				t.Errorf("a link is to %q", to.Name)
			}
		}
		for _, inner := range all {
			if inner.ParentID == s.Context.SpanID {
				b.Work += inner.Name + " " + letter(inner.Context)
			}
		}
		list = append(list, b)
	}
	return list, len(all)
}

const scored = `{"score":0.5,"together":3}` + "\n"

// Six requests at a time, at most three in a batch, two batches at a time:
// exactly two batches, each in the trace of its first request, and each request
// in one of them.
func TestSixRequestsTwoBatches(t *testing.T) {
	s, _ := start(t, "--size", "3", "--wait", "1m", "--batches", "2")
	var wg sync.WaitGroup
	for _, letter := range []string{"a", "b", "c", "d", "e", "f"} {
		wg.Go(func() {
			body, err := ask(t.Context(), s.URL+"/score", "good day", traceparent(letter, "01"))
			if err != nil || body != scored {
				t.Errorf("body %q, %v", body, err)
			}
		})
	}
	wg.Wait()
	s.Stop() // all spans are delivered
	list, spans := batches(t, s.Stdout.String())
	if want := 6*3 + 2*2; spans != want || len(list) != 2 {
		t.Fatalf("%d spans, want %d; batches %+v", spans, want, list)
	}
	var members []string
	for _, b := range list {
		members = append(members, strings.Split(b.Trace+b.Links, "")...)
		if b.Work != "forward "+b.Trace || len(b.Links) != 2 {
			t.Errorf("batch %+v", b)
		}
	}
	slices.Sort(members)
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "e", "f"}, members); diff != "" {
		t.Errorf("requests in the batches (-want +got):\n%s", diff)
	}
}

// The first request of the batch is not sampled: the batch is in the trace of the
// second, and there is nothing of the first.
func TestFirstIsNotSampled(t *testing.T) {
	s, admin := start(t, "--size", "3", "--wait", "1m")
	var wg sync.WaitGroup
	for i, caller := range []string{traceparent("a", "00"), traceparent("b", "01"), traceparent("c", "01")} {
		wg.Go(func() {
			body, err := ask(t.Context(), s.URL+"/score", "good day", caller)
			if err != nil || body != scored {
				t.Errorf("body %q, %v", body, err)
			}
		})
		if i < 2 {
			waiting(t, admin, []string{"1", "2"}[i])
		}
	}
	wg.Wait()
	s.Stop()
	list, spans := batches(t, s.Stdout.String())
	if diff := cmp.Diff([]batch{{Trace: "b", Links: "c", Work: "forward b"}}, list); diff != "" || spans != 2*3+2 {
		t.Errorf("%d spans; batches (-want +got):\n%s", spans, diff)
	}
}

// Texts are continued together, each to its own end, also when another client
// leaves.
func TestStreams(t *testing.T) {
	s, admin := start(t, "--size", "3", "--wait", "1m")
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := ask(ctx, s.URL+"/continue", strings.Repeat("word ", 100_000), traceparent("a", "01")); err == nil {
			t.Error("who leaves has an answer")
		}
	})
	waiting(t, admin, "1")
	for _, text := range []string{"one", "once upon a time"} {
		wg.Go(func() {
			body, err := ask(t.Context(), s.URL+"/continue", text, traceparent("b", "01"))
			var want strings.Builder
			for word := range strings.FieldsSeq(strings.ToUpper(text)) {
				want.WriteString(`{"word":"` + word + `"}` + "\n")
			}
			if err != nil || body != want.String() {
				t.Errorf("body %q, %v, want %q", body, err, want.String())
			}
		})
		if text == "one" {
			waiting(t, admin, "2")
		}
	}
	waiting(t, admin, "0")
	leave()
	wg.Wait()
	s.Stop()
	list, _ := batches(t, s.Stdout.String())
	if diff := cmp.Diff([]batch{{Trace: "a", Links: "bb", Work: "decode a"}}, list); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

func TestWrongArguments(t *testing.T) {
	servicetest.WrongArguments(t, "batching", "maximum number of requests in a batch")
}
