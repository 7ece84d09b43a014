package spans

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
)

// fixture is the data with which Ray Serve's own end-to-end test compares: the spans of
// one request by process, the newest start first, in the form of its span files, with ids
// and times blanked.
type fixture struct{ Upstream, Proxy, Replica []fixtureSpan }

type fixtureSpan struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Status struct {
		Code string `json:"status_code"`
	} `json:"status"`
	Attributes map[string]any `json:"attributes"`
	Events     []any          `json:"events"`
	Links      []any          `json:"links"`
}

func readFixture(t *testing.T, name string) fixture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "fixtures", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var f fixture
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		t.Fatal(err)
	}
	// The one argued difference in these files: the status is a number there too.
	for _, s := range f.Replica {
		if code, ok := s.Attributes["http.status_code"].(string); ok {
			s.Attributes["http.status_code"] = number(t, code)
		}
	}
	return f
}

func number(t *testing.T, text string) (n float64) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// asFixture returns a span in the form of the files, without ids and without our own
// keys.
func asFixture(t *testing.T, s sdktrace.ReadOnlySpan) fixtureSpan {
	t.Helper()
	out := fixtureSpan{
		Name: s.Name(), Kind: "SpanKind." + strings.ToUpper(s.SpanKind().String()),
		Attributes: map[string]any{}, Events: []any{}, Links: []any{},
	}
	out.Status.Code = strings.ToUpper(s.Status().Code.String())
	for _, kv := range s.Attributes() {
		key := string(kv.Key)
		switch {
		case strings.HasPrefix(key, "serve."):
		case key == "request_id", key == "replica_id":
			out.Attributes[key] = ""
		default:
			out.Attributes[key] = kv.Value.AsInterface()
		}
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, e.Name)
	}
	for _, l := range s.Links() {
		out.Links = append(out.Links, l.SpanContext.SpanID().String())
	}
	text, err := json.Marshal(out) // numbers become JSON numbers
	if err != nil {
		t.Fatal(err)
	}
	var plain fixtureSpan
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// checkFixture waits until the three spans of the request and the spans of user code have
// ended, sorts them into the files that Ray would write, and compares. Then it follows
// the parents from application_span: each span is on the way once.
func (r *rig) checkFixture(name, id string, upstream sdktrace.ReadOnlySpan) {
	t := r.t.(*testing.T)
	t.Helper()
	spans := slices.Clone(r.spans.request(t, id))
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return b.StartTime().Compare(a.StartTime()) })
	got := fixture{Upstream: []fixtureSpan{asFixture(t, upstream)}}
	byID := map[trace.SpanID]sdktrace.ReadOnlySpan{upstream.SpanContext().SpanID(): upstream}
	var innermost sdktrace.ReadOnlySpan
	for _, s := range spans {
		byID[s.SpanContext().SpanID()] = s
		switch {
		case s.Name() == "application_span":
			innermost = s
			fallthrough
		case familyOf(s.Name()) == "replica_handle_request":
			got.Replica = append(got.Replica, asFixture(t, s))
		default:
			got.Proxy = append(got.Proxy, asFixture(t, s))
		}
	}
	if diff := cmp.Diff(readFixture(t, name), got); diff != "" {
		t.Errorf("fixture %q (-want +got):\n%s", name, diff)
	}
	seen := 0
	for s := innermost; s != nil; s = byID[s.Parent().SpanID()] {
		delete(byID, s.SpanContext().SpanID())
		seen++
	}
	if len(byID) != 0 || seen != 5 {
		t.Errorf("the chain from application_span has %d spans, want 5; off it: %d", seen, len(byID))
	}
}

// upstreamApp starts the caller's span, which is of a process of its own in Ray.
func upstreamApp(t *testing.T) (upstream func() sdktrace.ReadOnlySpan, header http.Header) {
	t.Helper()
	own := newRecorder()
	p := newProvider(t, own)
	ctx, span := p.TracerProvider().Tracer(userScope).Start(t.Context(), "upstream_app")
	header = http.Header{}
	p.Inject(ctx, header)
	return func() sdktrace.ReadOnlySpan {
		span.End()
		return own.ended[span.SpanContext().TraceID()][0]
	}, header
}

// applicationSpan starts the span that the fixtures' models start.
func applicationSpan(ctx context.Context, r *rig) trace.Span {
	info, _ := serving.ReplicaContext(ctx)
	_, span := r.tracing.TracerProvider().Tracer(userScope).Start(ctx, "application_span")
	span.SetAttributes(attribute.String("deployment", info.Deployment), attribute.String("replica_id", info.ReplicaID.UniqueID))
	return span
}

// TestFixturesHTTP: Ray's test_tracing_e2e[basic] and [streaming].
func TestFixturesHTTP(t *testing.T) {
	var r *rig
	models := map[string]struct {
		deployment, verb string
		model            serving.HandlerFunc
		body             string
	}{
		"basic": {"BasicModel", http.MethodPost, func(w http.ResponseWriter, req *http.Request) error {
			defer applicationSpan(req.Context(), r).End()
			_, err := io.WriteString(w, "hello")
			return err
		}, "hello"},
		"streaming": {"StreamingModel", http.MethodGet, func(w http.ResponseWriter, req *http.Request) error {
			defer applicationSpan(req.Context(), r).End()
			for i := range 10 {
				if _, err := fmt.Fprintf(w, "%d\n", i); err != nil {
					return err
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					return err
				}
			}
			return nil
		}, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"},
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, c *http.Client) {
				r = serve(t, serving.Config{}, serving.NewApp("default", serving.NewDeployment(m.deployment, m.model)))
				upstream, header := upstreamApp(t)
				got := r.do(t.Context(), c, m.verb, name, "/", "traceparent", header.Get("Traceparent"))
				checkAnswer(t, got, answer{Status: 200, Body: m.body})
				r.checkFixture(name, name, upstream())
			})
		})
	}
}
