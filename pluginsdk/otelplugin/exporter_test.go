package otelplugin_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

// PartialSuccess looks like the type of OTLP's clients, which have it in
// internal packages; test/contrib meets the real ones.
type PartialSuccess struct { //nolint:errname // the clients' name for it
	ErrorMessage  string
	RejectedItems int64
	RejectedKind  string
}

func (p PartialSuccess) Error() string { return "OTLP partial success: " + p.ErrorMessage }

// look is another type of that name.
type look struct {
	PartialSuccess struct{ RejectedItems string }
}

func (look) Error() string { return "look" }

// TestAnswers: the answer for each error of an exporter, on every way to it.
func TestAnswers(t *testing.T) {
	partial := PartialSuccess{ErrorMessage: "odd", RejectedItems: 1}
	final, later := pluginsdk.Permanent(errBackEnd), pluginsdk.RetryAfter(errBackEnd, 1)
	for name, c := range map[string]struct{ err, want error }{
		"nil":                       {nil, nil},
		"plain":                     {errBackEnd, errBackEnd},
		"permanent":                 {fmt.Errorf("export: %w", final), final},
		"retry after":               {fmt.Errorf("export: %w", later), later},
		"context":                   {context.DeadlineExceeded, context.DeadlineExceeded},
		"partial":                   {partial, pluginsdk.Partial(1, "odd")},
		"partial, wrapped":          {fmt.Errorf("traces export: %w", errors.Join(nil, partial)), pluginsdk.Partial(1, "odd")},
		"partial, joined twice":     {errors.Join(errors.Join(partial), partial), pluginsdk.Partial(1, "odd")},
		"partial without a text":    {PartialSuccess{RejectedItems: 2}, pluginsdk.Partial(2, "the back end gave no reason")},
		"a warning":                 {PartialSuccess{ErrorMessage: "old field"}, pluginsdk.Partial(0, "old field")},
		"partial, and something":    {errors.Join(partial, errBackEnd), errBackEnd},
		"another type of that name": {look{}, look{}},
		"partial of ours":           {pluginsdk.Partial(1, "odd"), pluginsdk.Partial(1, "odd")},
	} {
		t.Run(name, func(t *testing.T) {
			fail := func(int) error { return c.err }
			for way, e := range map[string]pluginsdk.Exporter{
				"exporter": exporter(t, &recorder{fail: fail}),
				"client":   built(t, client(&clientRecorder{fail: c.err})),
				"pipeline": pipeline(t, sdktrace.NewBatchSpanProcessor(&recorder{fail: fail})),
			} {
				err := e.Export(t.Context(), numbered(3))
				if !sameAnswer(err, c.want) {
					t.Errorf("%s answers %v (%T), want %v (%T)", way, err, err, c.want, c.want)
				}
			}
		})
	}
}

// sameAnswer reports whether err has want in its chain. Two Partials are the same if their
// texts are.
func sameAnswer(err, want error) bool {
	if errors.Is(err, want) {
		return true
	}
	return err != nil && want != nil && err.Error() == want.Error() && fmt.Sprintf("%T", err) == fmt.Sprintf("%T", want)
}

// TestPipelineCounts: a final error of some pieces does not end the others, and the answer
// covers all.
func TestPipelineCounts(t *testing.T) {
	final := pluginsdk.Permanent(errBackEnd)
	grpcFinal := status.Error(3, "no such tenant") // INVALID_ARGUMENT
	for name, c := range map[string]struct {
		fail  func(call int) error
		want  error
		calls int
	}{
		"one piece is final":     {failOnce(1, final), pluginsdk.Partial(256, "flush span processor 1 (*trace.batchSpanProcessor): back end is down"), 4},
		"one is final by status": {failOnce(0, grpcFinal), pluginsdk.Partial(256, "flush span processor 1 (*trace.batchSpanProcessor): rpc error: code = InvalidArgument desc = no such tenant"), 4},
		"the last is short":      {failOnce(3, final), pluginsdk.Partial(32, "flush span processor 1 (*trace.batchSpanProcessor): back end is down"), 4},
		"all are final":          {func(int) error { return final }, final, 4},
		"partial of some":        {failOnce(2, PartialSuccess{"odd", 5, "spans"}), pluginsdk.Partial(5, "odd"), 4},
		"partial beyond a piece": {func(int) error { return PartialSuccess{"odd", 5000, "spans"} }, pluginsdk.Partial(800, "odd"), 4},
		"partial of ours":        {func(int) error { return pluginsdk.Partial(1, "odd") }, pluginsdk.Partial(4, "odd"), 4},
		"a warning":              {failOnce(0, PartialSuccess{"old", 0, "spans"}), pluginsdk.Partial(0, "old"), 4},
		"final, then later": {func(call int) error {
			if call == 0 {
				return final
			}
			return errBackEnd
		}, errBackEnd, 2},
	} {
		t.Run(name, func(t *testing.T) {
			back := recorder{fail: c.fail}
			err := pipeline(t, sdktrace.NewBatchSpanProcessor(&back)).Export(t.Context(), numbered(800))
			if !sameAnswer(err, c.want) {
				t.Errorf("answer is %v, want %v", err, c.want)
			}
			if got := len(back.sizes()); got != c.calls {
				t.Errorf("%d calls, want %d", got, c.calls)
			}
		})
	}
}

// TestWorstAnswerOfAPieceWins: nothing is lost to one back end because another
// refuses it.
func TestWorstAnswerOfAPieceWins(t *testing.T) {
	flush := func(err error) hooks { return hooks{flush: func(context.Context) error { return err }} }
	final, odd, odder := pluginsdk.Permanent(errBackEnd), PartialSuccess{"odd", 1, "spans"}, PartialSuccess{"odder", 2, "spans"}
	later := errors.New("later")
	for name, c := range map[string]struct {
		errs []error
		want string
		also error
	}{
		"partials":          {[]error{odd, odder, odd}, "2 spans rejected: odder", nil},
		"final over part":   {[]error{odd, final}, "flush span processor 2 (otelplugin_test.hooks): back end is down", final},
		"later over final":  {[]error{final, later}, "flush span processor 2 (otelplugin_test.hooks): later", later},
		"later over all":    {[]error{odd, later, final}, "flush span processor 2 (otelplugin_test.hooks): later", later},
		"several are later": {[]error{later, final, pluginsdk.RetryAfter(later, 1)}, "flush span processor 1 (otelplugin_test.hooks): later (and 1 more, such as: flush span processor 3 (otelplugin_test.hooks): later)", later},
	} {
		t.Run(name, func(t *testing.T) {
			var all []sdktrace.SpanProcessor
			for _, err := range c.errs {
				all = append(all, flush(err))
			}
			err := pipeline(t, all...).Export(t.Context(), numbered(3))
			if err == nil || err.Error() != c.want || (c.also != nil && !errors.Is(err, c.also)) {
				t.Errorf("answer is %v, want %q", err, c.want)
			}
		})
	}
}

// TestExporterIsConcurrentSafe although the author's is not: the SDK never calls
// one twice at a time.
func TestExporterIsConcurrentSafe(t *testing.T) {
	var back recorder
	e := exporter(t, &back)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if err := e.Export(t.Context(), numbered(50)); err != nil {
				t.Error(err)
			}
			if err := e.(pluginsdk.Flusher).Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if back.overlap || len(back.sizes()) != 20 {
		t.Errorf("%d calls, overlapping: %v; want 20, one after another", len(back.sizes()), back.overlap)
	}
}

// flusher is an exporter that holds back.
type flusher struct {
	recorder
	flushed int
}

func (f *flusher) ForceFlush(context.Context) error {
	f.flushed++
	return errBackEnd
}

func TestExporterThatFlushes(t *testing.T) {
	var f flusher
	if err := exporter(t, &f).(pluginsdk.Flusher).Flush(t.Context()); !errors.Is(err, errBackEnd) || f.flushed != 1 {
		t.Errorf("Flush: %v after %d calls of ForceFlush, want its error and one", err, f.flushed)
	}
}

// TestExporterSkipsWhatIsEmpty and is shut down once.
func TestExporterSkipsWhatIsEmpty(t *testing.T) {
	var back recorder
	var upload clientRecorder
	for _, construct := range []pluginsdk.NewExporter{
		otelplugin.Exporter(func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error) { return &back, nil }),
		client(&upload),
	} {
		e, err := construct(t.Context(), pluginsdk.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Export(t.Context(), pluginsdk.NewBatch(nil)); err != nil {
			t.Error(err)
		}
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(back.sizes()) != 0 || back.stopped != 1 || len(upload.calls) != 0 || upload.stopped != 1 {
		t.Errorf("exporter: %v calls, %d times shut down; client: %d, %d; want none and once", back.sizes(), back.stopped, len(upload.calls), upload.stopped)
	}
}

// clientRecorder is an otlptrace.Client.
type clientRecorder struct {
	startErr, fail   error
	calls            [][]*tracepb.ResourceSpans
	started, stopped int
}

func (c *clientRecorder) Start(context.Context) error {
	c.started++
	return c.startErr
}

func (c *clientRecorder) Stop(context.Context) error {
	c.stopped++
	return nil
}

func (c *clientRecorder) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.calls = append(c.calls, spans)
	return c.fail
}

func client(c otelplugin.TraceClient) pluginsdk.NewExporter {
	return otelplugin.Client(func(context.Context, pluginsdk.Setup) (otelplugin.TraceClient, error) { return c, nil })
}

// TestClientGetsTheBatch as it came, with the edits of processors.
func TestClientGetsTheBatch(t *testing.T) {
	batch := batchOf(fullStub(t).Snapshot())
	for span := range batch.Spans() {
		span.SetName("edited")
	}
	var want tracepb.TracesData
	if err := proto.Unmarshal(batch.Bytes(), &want); err != nil {
		t.Fatal(err)
	}
	var c clientRecorder
	if err := built(t, client(&c)).Export(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.GetResourceSpans(), c.calls[0], protocmp.Transform()); diff != "" || c.started != 1 {
		t.Errorf("uploaded after %d starts (-want +got):\n%s", c.started, diff)
	}
}

func TestClientThatDoesNotStart(t *testing.T) {
	c := clientRecorder{startErr: errBackEnd}
	if _, err := client(&c)(t.Context(), pluginsdk.Setup{}); !errors.Is(err, errBackEnd) || c.stopped != 0 {
		t.Errorf("construction gives %v, the client was stopped %d times; want its error, and never", err, c.stopped)
	}
}

func TestMalformedForClient(t *testing.T) {
	var c clientRecorder
	if err := built(t, client(&c)).Export(t.Context(), pluginsdk.NewBatch([]byte{0xff})); err == nil || len(c.calls) != 0 {
		t.Errorf("Export of bytes that are no OTLP: %v after %d calls, want an error and none", err, len(c.calls))
	}
}

func TestExportersRefuseNothing(t *testing.T) {
	for name, construct := range map[string]pluginsdk.NewExporter{
		"nil exporter": otelplugin.Exporter(func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error) { return nil, nil }),
		"nil client":   client(nil),
	} {
		if _, err := construct(t.Context(), pluginsdk.Setup{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, construct := range map[string]pluginsdk.NewExporter{
		"exporter": otelplugin.Exporter(func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error) { return nil, errBackEnd }),
		"client":   otelplugin.Client(func(context.Context, pluginsdk.Setup) (otelplugin.TraceClient, error) { return nil, errBackEnd }),
	} {
		if _, err := construct(t.Context(), pluginsdk.Setup{}); !errors.Is(err, errBackEnd) {
			t.Errorf("%s: %v, want the constructor's error as it is", name, err)
		}
	}
}
