package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
)

// backEnd is an exporter with given answers, which records its calls.
type backEnd struct {
	mu      sync.Mutex
	answers []error // for one call each; then nil
	calls   []string
	ended   []string
	fault   error // of Flush and Shutdown
}

func (e *backEnd) New(context.Context, Setup) (Exporter, error) { return e, nil }

func (e *backEnd) Export(_ context.Context, b *Batch) error {
	names := ""
	for span := range b.Spans() {
		names += " " + span.Name()
		span.SetName("mine") // nobody else sees it
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, fmt.Sprintf("%s/%d%s", b.ID(), b.Attempt(), names))
	if len(e.answers) == 0 {
		return nil
	}
	answer := e.answers[0]
	e.answers = e.answers[1:]
	if answer != nil && answer.Error() == "panic" {
		panic(answer)
	}
	return answer
}

func (e *backEnd) Flush(context.Context) error {
	e.ended = append(e.ended, "flush")
	return e.fault
}

func (e *backEnd) Shutdown(context.Context) error {
	e.ended = append(e.ended, "shutdown")
	return e.fault
}

// newTee builds a Tee of exporters that answer so.
func newTee(t *testing.T, answers ...[]error) (*tee, []*backEnd) {
	t.Helper()
	var constructors []NewExporter
	var all []*backEnd
	for _, list := range answers {
		e := &backEnd{answers: list}
		all = append(all, e)
		constructors = append(constructors, e.New)
	}
	made, err := Tee(constructors...)(t.Context(), Setup{})
	if err != nil {
		t.Fatal(err)
	}
	return made.(*tee), all
}

// teeBatch is one span "s" under an id.
func teeBatch(id string, attempt int) *Batch {
	b := NewBatch([]byte("\n\x07\x12\x05\x12\x03\x2a\x01s"))
	b.id, b.attempt = id, attempt
	return b
}

// told returns the text that a host gets.
func told(err error) string {
	if partial := asPartial(err); partial != nil {
		return "partial " + partial.Error()
	}
	if err == nil {
		return "delivered"
	}
	e := wire.FromStatus(wire.ToStatus(err))
	return fmt.Sprintf("%s final=%v after=%v %s", e.Code, e.Final, e.After, strings.ReplaceAll(e.Error(), "\n", " | "))
}

func TestTeeAnswers(t *testing.T) {
	down, no := errors.New("down"), Permanent(errors.New("no"))
	for _, c := range []struct {
		name string
		a, b error
		want string
	}{
		{"both", nil, nil, "delivered"},
		{"one wants it again", down, nil, "UNAVAILABLE final=false after=0s exporter 1 of 2: down"},
		{"again beats no", down, no, "UNAVAILABLE final=false after=0s exporter 1 of 2: down"},
		{"the longest rest", RetryAfter(down, time.Second), RetryAfter(down, time.Minute), "UNAVAILABLE final=false after=1m0s exporter 1 of 2: down | exporter 2 of 2: down"},
		{"a rest of its own", nil, RetryAfter(down, time.Second), "UNAVAILABLE final=false after=1s exporter 2 of 2: down"},
		{"a status of its own", status.Error(codes.Aborted, "busy"), nil, "ABORTED final=false after=0s exporter 1 of 2: busy"},
		{"a final status", nil, status.Error(codes.PermissionDenied, "who"), "PERMISSION_DENIED final=true after=0s exporter 2 of 2: who"},
		{"no", nil, no, "INVALID_ARGUMENT final=true after=0s exporter 2 of 2: no"},
		{"no and no", no, no, "INVALID_ARGUMENT final=true after=0s exporter 1 of 2: no | exporter 2 of 2: no"},
		{"no beats in part", no, Partial(1, "old"), "INVALID_ARGUMENT final=true after=0s exporter 1 of 2: no"},
		{"in part", Partial(1, "old"), nil, "partial 1 spans rejected: exporter 1 of 2: old"},
		{"sums", Partial(1, "old"), Partial(2, "long"), "partial 3 spans rejected: exporter 1 of 2: old; exporter 2 of 2: long"},
		{"panic", errors.New("panic"), nil, "INTERNAL final=true after=0s exporter 1 of 2: panic: panic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			made, all := newTee(t, []error{c.a}, []error{c.b})
			if got := told(made.Export(t.Context(), teeBatch("x", 1))); got != c.want {
				t.Errorf("answer is %s\nwant      %s", got, c.want)
			}
			for i, e := range all {
				if d := cmp.Diff([]string{"x/1 s"}, e.calls); d != "" {
					t.Errorf("calls of exporter %d (-want +got):\n%s", i+1, d)
				}
			}
		})
	}
}

// TestTeeSendsAgainToThoseThatHaveItNot and sums up over the attempts.
func TestTeeSendsAgainToThoseThatHaveItNot(t *testing.T) {
	down := errors.New("down")
	made, all := newTee(t,
		[]error{Partial(1, "old")},
		[]error{down, down},
		[]error{nil, errors.New("not asked")},
		[]error{down, Partial(1, "long")},
	)
	var answers []string
	for attempt := 1; attempt <= 3; attempt++ {
		answers = append(answers, told(made.Export(t.Context(), teeBatch("x", attempt))))
	}
	want := []string{
		"UNAVAILABLE final=false after=0s exporter 2 of 4: down | exporter 4 of 4: down",
		"UNAVAILABLE final=false after=0s exporter 2 of 4: down",
		"partial 2 spans rejected: exporter 1 of 4: old; exporter 4 of 4: long",
	}
	if d := cmp.Diff(want, answers); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
	for i, want := range [][]string{{"x/1 s"}, {"x/1 s", "x/2 s", "x/3 s"}, {"x/1 s"}, {"x/1 s", "x/2 s"}} {
		if d := cmp.Diff(want, all[i].calls); d != "" {
			t.Errorf("calls of exporter %d (-want +got):\n%s", i+1, d)
		}
	}
	if len(made.memory.answers) != 0 || len(made.memory.order) != 0 {
		t.Errorf("%d batches are remembered that are done", len(made.memory.answers))
	}
	// Under another id it is another batch, and without one it has no history.
	for _, id := range []string{"y", "", ""} {
		all[0].answers = []error{down}
		_ = made.Export(t.Context(), teeBatch(id, 1))
	}
	if d := cmp.Diff([]string{"x/1 s", "x/2 s", "x/3 s", "y/1 s", "/1 s", "/1 s"}, all[1].calls); d != "" {
		t.Errorf("calls of exporter 2 (-want +got):\n%s", d)
	}
}

// TestTeeMemoryIsBounded: a forgotten batch is sent to all exporters again.
func TestTeeMemoryIsBounded(t *testing.T) {
	made, all := newTee(t, nil, nil)
	const batches = 3 * maxTeeRecords
	for i := range batches {
		all[0].answers = []error{errors.New("down")}
		if err := made.Export(t.Context(), teeBatch(fmt.Sprint(i), 1)); err == nil {
			t.Fatal("delivered")
		}
	}
	if len(made.memory.answers) != maxTeeRecords || len(made.memory.order) != maxTeeRecords || cap(made.memory.order) > 4*maxTeeRecords {
		t.Errorf("%d batches are remembered, %d in order of %d, want %d", len(made.memory.answers), len(made.memory.order), cap(made.memory.order), maxTeeRecords)
	}
	for _, id := range []int{0, batches - 1} {
		if err := made.Export(t.Context(), teeBatch(fmt.Sprint(id), 2)); err != nil {
			t.Error(err)
		}
	}
	if got, want := len(all[1].calls), batches+1; got != want {
		t.Errorf("the second exporter was called %d times, want %d: once more for the batch that was forgotten", got, want)
	}
}

// TestTeeRemembersBeforeAllHaveAnswered: one that hangs does not make the
// others' batch come twice.
func TestTeeRemembersBeforeAllHaveAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		quick, hung := &backEnd{}, 0
		hang := ExportFunc(func(context.Context, *Batch) error {
			hung++
			<-leave
			return nil
		})
		made, err := Tee(quick.New, func(context.Context, Setup) (Exporter, error) { return hang, nil })(t.Context(), Setup{})
		if err != nil {
			t.Fatal(err)
		}
		for attempt := 1; attempt <= 2; attempt++ {
			go func() {
				if err := made.Export(t.Context(), teeBatch("x", attempt)); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		close(leave)
		synctest.Wait()
		if d := cmp.Diff([]string{"x/1 s"}, quick.calls); d != "" || hung != 2 {
			t.Errorf("the one that hung was called %d times, want 2; calls of the quick one (-want +got):\n%s", hung, d)
		}
	})
}

func TestTeeMalformedBatchIsRefused(t *testing.T) {
	made, _ := newTee(t, nil, nil)
	got := told(made.Export(t.Context(), &Batch{id: "x", attempt: 1, raw: []byte{0x0a, 0x7f}}))
	if !strings.HasPrefix(got, "INVALID_ARGUMENT final=true after=0s exporter 1 of 2: malformed batch: ") {
		t.Errorf("answer is %s", got)
	}
}

func TestTeeConstruction(t *testing.T) {
	good := &backEnd{}
	fails := func(err error) NewExporter {
		return func(context.Context, Setup) (Exporter, error) { return nil, err }
	}
	for _, c := range []struct {
		name         string
		constructors []NewExporter
		want         string
	}{
		{"none", nil, "a Tee of no exporters"},
		{"nil", []NewExporter{nil}, "exporter 1 of 1: constructor is nil"},
		{"nothing", []NewExporter{fails(nil)}, "exporter 1 of 1: constructor gave neither a value nor an error"},
		{"all faults are told", []NewExporter{
			fails(errors.New("a")), good.New,
			fails(errors.Join(&ConfigError{Path: "p", Err: errors.New("b")}, errors.New("c"))),
		}, "exporter 1 of 3: a\nexporter 3 of 3: p: b\nexporter 3 of 3: c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Tee(c.constructors...)(t.Context(), Setup{})
			if err == nil || err.Error() != c.want {
				t.Errorf("error is %v, want %s", err, c.want)
			}
		})
	}
	if d := cmp.Diff([]string{"shutdown"}, good.ended); d != "" {
		t.Errorf("the one that was built (-want +got):\n%s", d)
	}
}

func TestTeeEnds(t *testing.T) {
	made, all := newTee(t, nil, nil)
	all[1].fault = errors.New("stuck")
	for what, end := range map[string]func(context.Context) error{"flush": made.Flush, "shutdown": made.Shutdown} {
		if err := end(t.Context()); err == nil || err.Error() != "exporter 2 of 2: stuck" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, e := range all {
		if len(e.ended) != 2 {
			t.Errorf("exporter %d: %v", i+1, e.ended)
		}
	}
}
