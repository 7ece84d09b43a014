package otlpwire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// flat returns each span with its resource and scope, one line each.
func flat(tb testing.TB, req []byte) []string {
	tb.Helper()
	var lines []string
	for _, rs := range unmarshal(tb, req).ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				b := slices.Concat(marshal(tb, &tracepb.ResourceSpans{Resource: rs.Resource, SchemaUrl: rs.SchemaUrl}),
					marshal(tb, &tracepb.ScopeSpans{Scope: ss.Scope, SchemaUrl: ss.SchemaUrl}), marshal(tb, s))
				lines = append(lines, fmt.Sprintf("%s/%s %x", ss.GetScope().GetName(), s.Name, b))
			}
		}
	}
	return lines
}

// cutAll cuts req into pieces, one after another.
func cutAll(req []byte, maxSpans, maxBytes int) (pieces [][]byte, err error) {
	n, err := CountSpans(req)
	for done := 0; err == nil && done < n; {
		piece, spans, cutErr := Cut(req, done, maxSpans, maxBytes)
		if cutErr == nil && spans == 0 {
			cutErr = errors.New("a piece without spans before the end")
		}
		pieces, done, err = append(pieces, piece), done+spans, cutErr
	}
	return pieces, err
}

func TestCut(t *testing.T) {
	req := sample(7)
	withUnknown(req.ProtoReflect())
	// Spans of many lengths, one too long for most limits, and empty groups.
	req.ResourceSpans[0].ScopeSpans[1].Spans[2].Name = strings.Repeat("long ", 1000)
	for i, s := range req.ResourceSpans[1].ScopeSpans[0].Spans {
		s.Events = s.Events[: i%3 : i%3]
	}
	req.ResourceSpans = slices.Insert(req.ResourceSpans, 1, &tracepb.ResourceSpans{SchemaUrl: "empty"})
	empty := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "empty"}}
	scopes := &req.ResourceSpans[0].ScopeSpans
	*scopes = append(slices.Insert(*scopes, 1, empty), empty)
	whole := marshal(t, req)
	want := flat(t, whole)

	limits := []int{0, 1, 2, 5, 20, 21, 400, 1000, 1001, 1500, 2048, 4096, 10000, len(whole) - 1, len(whole)}
	for _, maxSpans := range limits {
		for _, maxBytes := range limits {
			pieces, err := cutAll(whole, maxSpans, maxBytes)
			if err != nil {
				t.Fatal(err)
			}
			checkPieces(t, pieces, maxSpans, maxBytes)
			if d := cmp.Diff(want, flat(t, slices.Concat(pieces...))); d != "" {
				t.Errorf("cut by %d spans and %d bytes, then merged (-want +got):\n%s", maxSpans, maxBytes, d[:min(len(d), 2000)])
			}
		}
	}
}

// checkPieces: each is within the limits or is one span, and two neighbours
// would not have fitted into one.
func checkPieces(t *testing.T, pieces [][]byte, maxSpans, maxBytes int) {
	t.Helper()
	for i, piece := range pieces {
		n, err := CountSpans(piece)
		if err != nil || n == 0 {
			t.Errorf("piece %d has %d spans, error %v", i, n, err)
		}
		if n > 1 && ((maxSpans > 0 && n > maxSpans) || (maxBytes > 0 && len(piece) > maxBytes)) {
			t.Errorf("piece %d has %d spans and %d bytes, past %d and %d", i, n, len(piece), maxSpans, maxBytes)
		}
		if i == 0 {
			continue
		}
		before, err := CountSpans(pieces[i-1])
		if err != nil {
			t.Fatal(err)
		}
		if (maxSpans <= 0 || n+before <= maxSpans) && (maxBytes <= 0 || len(piece)+len(pieces[i-1]) <= maxBytes) {
			t.Errorf("pieces %d and %d would fit into one", i-1, i)
		}
	}
}

func TestCutKeepsUnknownFields(t *testing.T) {
	req := sample(2)
	withUnknown(req.ProtoReflect())
	pieces, err := cutAll(marshal(t, req), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, piece := range pieces {
		got := unmarshal(t, piece)
		rs := got.ResourceSpans[0]
		for _, m := range []proto.Message{rs, rs.ScopeSpans[0], rs.ScopeSpans[0].Scope, rs.ScopeSpans[0].Spans[0]} {
			if len(m.ProtoReflect().GetUnknown()) == 0 {
				t.Errorf("piece %d: %T lost its unknown field", i, m)
			}
		}
		if has := len(got.ProtoReflect().GetUnknown()) > 0; has != (i == 0) {
			t.Errorf("piece %d has the request's unknown field: %v", i, has)
		}
	}
}

// TestCutBesideUnknownFields: unknown fields that take the whole limit are no reason to
// ignore it.
func TestCutBesideUnknownFields(t *testing.T) {
	req := sample(2)
	withUnknown(req.ProtoReflect())
	limit := len(req.ProtoReflect().GetUnknown())
	if _, spans, err := Cut(marshal(t, req), 0, 0, limit); err != nil || spans != 1 {
		t.Errorf("%d spans in the first piece, error %v, want one span", spans, err)
	}
}

func TestCutPastTheEnd(t *testing.T) {
	for _, req := range [][]byte{nil, marshal(t, sample(3))} {
		n, err := CountSpans(req)
		if err != nil {
			t.Fatal(err)
		}
		for _, skip := range []int{n, n + 1} {
			if piece, spans, err := Cut(req, skip, 1, 1); err != nil || spans != 0 || (n > 0 && len(piece) != 0) {
				t.Errorf("from %d of %d spans: %d bytes with %d spans, error %v", skip, n, len(piece), spans, err)
			}
		}
	}
}

func TestCountSpans(t *testing.T) {
	for _, n := range []int{0, 1, 50} {
		if got, err := CountSpans(marshal(t, sample(n))); err != nil || got != 3*n {
			t.Errorf("CountSpans() = %d, %v, want %d", got, err, 3*n)
		}
	}
}
