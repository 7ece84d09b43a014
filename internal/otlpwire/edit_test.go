package otlpwire

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// naive is the other way to do it: the request decoded, edited and encoded. It
// gives the spans in the order of a Request's.
type naive struct {
	req       *request
	spans     []*tracepb.Span
	resources []*tracepb.ResourceSpans
	resource  []int // of each span
	dropped   map[*tracepb.Span]bool
}

func newNaive(req *request) *naive {
	n := &naive{req: req, resources: req.ResourceSpans, dropped: map[*tracepb.Span]bool{}}
	for i, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				n.spans = append(n.spans, s)
				n.resource = append(n.resource, i)
			}
		}
	}
	return n
}

func naiveSet(kvs []*commonpb.KeyValue, key, value string) []*commonpb.KeyValue {
	i := slices.IndexFunc(kvs, func(kv *commonpb.KeyValue) bool { return kv.Key == key })
	if i < 0 {
		return append(kvs, text(key, value))
	}
	kvs[i] = text(key, value)
	return append(kvs[:i+1:i+1], naiveDelete(kvs[i+1:], key)...)
}

func naiveDelete(kvs []*commonpb.KeyValue, key string) []*commonpb.KeyValue {
	var kept []*commonpb.KeyValue
	for _, kv := range kvs {
		if kv.Key != key {
			kept = append(kept, kv)
		}
	}
	return kept
}

// done leaves out what was dropped and what it left empty.
func (n *naive) done() *request {
	n.req.ResourceSpans = slices.DeleteFunc(n.req.ResourceSpans, func(rs *tracepb.ResourceSpans) bool {
		before, after := 0, 0
		rs.ScopeSpans = slices.DeleteFunc(rs.ScopeSpans, func(ss *tracepb.ScopeSpans) bool {
			had := len(ss.Spans)
			ss.Spans = slices.DeleteFunc(ss.Spans, func(s *tracepb.Span) bool { return n.dropped[s] })
			before, after = before+had, after+len(ss.Spans)
			return had > 0 && len(ss.Spans) == 0
		})
		return before > 0 && after == 0
	})
	return n.req
}

// sorted orders attributes, whose order is not promised after edits.
func sorted(req *request) *request {
	byKey := func(a, b *commonpb.KeyValue) int { return cmp.Compare(a.Key, b.Key) }
	for _, rs := range req.ResourceSpans {
		slices.SortStableFunc(rs.GetResource().GetAttributes(), byKey)
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				slices.SortStableFunc(s.Attributes, byKey)
			}
		}
	}
	return req
}

var opKeys = []string{"", "http.route", "twice", "new", "service.name", "a much longer key that changes how long a length is" + strings.Repeat("!", 100)}

// apply does one edit both ways. what chooses edit and key, where the span.
func apply(r *Request, n *naive, what, where byte, value string) {
	spans := slices.Collect(r.all())
	if len(spans) == 0 {
		return
	}
	i := int(where) % len(spans)
	s, want := spans[i], n.spans[i]
	rs := n.resources[n.resource[i]]
	key := opKeys[int(what/8)%len(opKeys)]
	switch what % 8 {
	case 0, 1:
		s.SetAttribute(attribute.String(key, value))
		want.Attributes = naiveSet(want.Attributes, key, value)
	case 2:
		s.DeleteAttribute(key)
		want.Attributes = naiveDelete(want.Attributes, key)
	case 3:
		s.SetName(value)
		want.Name = value
	case 4:
		s.SetStatus(int32(where)-1, value)
		if want.Status == nil {
			want.Status = &tracepb.Status{}
		}
		want.Status.Code, want.Status.Message = tracepb.Status_StatusCode(int32(where)-1), value
	case 5:
		s.Drop()
		n.dropped[want] = true
	case 6:
		s.Resource().SetAttribute(attribute.String(key, value))
		if rs.Resource == nil {
			rs.Resource = &resourcepb.Resource{}
		}
		rs.Resource.Attributes = naiveSet(rs.Resource.Attributes, key, value)
	case 7:
		s.Resource().DeleteAttribute(key)
		if rs.Resource != nil {
			rs.Resource.Attributes = naiveDelete(rs.Resource.Attributes, key)
		}
	}
}

// all goes through the dropped spans too.
func (r *Request) all() func(func(Span) bool) {
	return func(yield func(Span) bool) {
		for i := range r.spans {
			if !yield(Span{r, i}) {
				return
			}
		}
	}
}

// checkReads compares what the views give with the naive way, before anything
// is written.
func checkReads(t *testing.T, r *Request, n *naive) {
	t.Helper()
	i := 0
	for s := range r.all() {
		want := n.spans[i]
		i++
		if s.Dropped() != n.dropped[want] {
			t.Errorf("span %d: Dropped() = %v", i, s.Dropped())
		}
		if s.Name() != want.Name {
			t.Errorf("span %d: Name() = %q, want %q", i, s.Name(), want.Name)
		}
		if code, message := s.Status(); code != int32(want.GetStatus().GetCode()) || message != want.GetStatus().GetMessage() {
			t.Errorf("span %d: Status() = %d %q, want %v", i, code, message, want.Status)
		}
		checkAttributes(t, want.Attributes, s.Attributes(), s.Attribute)
		checkAttributes(t, n.resources[n.resource[i-1]].GetResource().GetAttributes(), s.Resource().Attributes(), s.Resource().Attribute)
	}
}

func checkAttributes(t *testing.T, want []*commonpb.KeyValue, all func(func(string, Value) bool), find func(string) (Value, bool)) {
	t.Helper()
	line := func(key string, value *commonpb.AnyValue) string {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q=%x", key, b)
	}
	read := func(v Value) *commonpb.AnyValue {
		value := &commonpb.AnyValue{}
		if err := proto.Unmarshal(v.p.raw, value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	var wants, gots []string
	last := map[string]*commonpb.AnyValue{}
	for _, kv := range want {
		wants = append(wants, line(kv.Key, kv.Value))
		last[kv.Key] = kv.Value
	}
	for k, v := range all {
		gots = append(gots, line(k, read(v)))
	}
	slices.Sort(wants)
	slices.Sort(gots)
	if d := gocmp.Diff(wants, gots); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
	for _, key := range append(opKeys, slices.Collect(maps.Keys(last))...) {
		v, ok := find(key)
		if value, want := last[key]; ok != want || line(key, read(v)) != line(key, value) {
			t.Errorf("attribute %q = %v, %v, want %v, %v", key, v.Attribute(), ok, value, want)
		}
	}
}

func checkEdited(t *testing.T, r *Request, n *naive) {
	t.Helper()
	checkReads(t, r, n)
	want := sorted(n.done())
	got := sorted(unmarshal(t, r.AppendTo(nil)))
	if !proto.Equal(want, got) {
		t.Errorf("edited (-want +got):\n%s", gocmp.Diff(want, got, protocmp.Transform()))
	}
	if again := r.AppendTo([]byte("before")); !proto.Equal(want, sorted(unmarshal(t, again[len("before"):]))) {
		t.Errorf("AppendTo a second time gives something else")
	}
	left := 0
	for range r.Spans() {
		left++
	}
	if r.Len() != left || left != len(n.spans)-len(n.dropped) {
		t.Errorf("Len() = %d, Spans() gives %d, want %d", r.Len(), left, len(n.spans)-len(n.dropped))
	}
}

func TestEdit(t *testing.T) {
	long := strings.Repeat("long ", 1<<12)
	for name, ops := range map[string][]struct {
		what, where byte
		value       string
	}{
		"replace an attribute":             {{0 + 8, 0, "/b"}},
		"one is left of several":           {{0 + 16, 1, "x"}},
		"add one to every span":            {{0 + 24, 0, "x"}, {0 + 24, 1, "x"}, {0 + 24, 2, "x"}, {0 + 24, 3, "x"}, {0 + 24, 4, "x"}, {0 + 24, 5, "x"}},
		"set twice":                        {{0 + 24, 0, "x"}, {0 + 24, 0, "y"}, {0, 0, "z"}},
		"delete several":                   {{2 + 16, 0, ""}},
		"delete what is not there":         {{2 + 24, 0, ""}},
		"set, then delete":                 {{0 + 24, 0, "x"}, {2 + 24, 0, ""}, {0 + 8, 0, "x"}, {2 + 8, 0, ""}},
		"delete, then set":                 {{2 + 16, 0, ""}, {0 + 16, 0, "x"}},
		"longer lengths everywhere":        {{0 + 8, 0, long}, {0 + 40, 0, long}, {3, 3, long}, {4, 4, long}, {6 + 40, 0, long}},
		"shorter lengths":                  {{2, 0, ""}, {2 + 8, 0, ""}, {3, 0, ""}, {4, 0, ""}},
		"names":                            {{3, 0, "other"}, {3, 5, ""}},
		"status":                           {{4, 0, "negative"}, {4, 1, ""}, {4, 2, "ok"}},
		"drop one":                         {{5, 0, ""}},
		"drop a scope":                     {{5, 0, ""}, {5, 1, ""}, {5, 1, ""}},
		"drop a resource, edit after it":   {{5, 0, ""}, {5, 1, ""}, {5, 2, ""}, {5, 3, ""}, {3, 4, "x"}},
		"drop all":                         {{5, 0, ""}, {5, 1, ""}, {5, 2, ""}, {5, 3, ""}, {5, 4, ""}, {5, 5, ""}},
		"edit, then drop":                  {{0 + 8, 0, "x"}, {5, 0, ""}},
		"drop the last scope of the first": {{5, 2, ""}, {5, 3, ""}, {3, 4, "x"}},
		"resource":                         {{6 + 32, 0, "other"}, {6 + 24, 0, "new"}, {7, 0, ""}},
		"resource where there is none":     {{6 + 24, 5, "new"}},
		"resource and its spans":           {{6 + 32, 1, "other"}, {7 + 24, 1, ""}, {3, 3, "name"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, unknown := range []bool{false, true} {
				req := sample(2)
				if unknown {
					withUnknown(req.ProtoReflect())
				}
				r, n := parse(t, marshal(t, req)), newNaive(req)
				for _, op := range ops {
					apply(r, n, op.what, op.where, op.value)
				}
				checkEdited(t, r, n)
			}
		})
	}
}

// FuzzEdit compares edits of the bytes with edits of decoded messages, on
// whatever bytes protobuf takes for a request.
func FuzzEdit(f *testing.F) {
	plain, unknown := sample(2), sample(1)
	withUnknown(unknown.ProtoReflect())
	whole := marshal(f, plain)
	pieces := slices.Concat(wrap(slices.Concat(
		marshal(f, &tracepb.Span{Name: "a", Status: &tracepb.Status{Message: "m"}}),
		marshal(f, &tracepb.Span{Name: "b", Status: &tracepb.Status{Code: 2}}))), whole)
	for _, req := range [][]byte{whole, marshal(f, unknown), pieces} {
		for what := range byte(8) {
			f.Add(req, []byte{what, 0, what + 8, 1, what + 24, 2, 5, 3}, "value")
		}
	}
	f.Fuzz(func(t *testing.T, req, ops []byte, value string) {
		decoded := &request{}
		if proto.Unmarshal(req, decoded) != nil || strings.ToValidUTF8(value, "") != value {
			return
		}
		r, n := parse(t, req), newNaive(decoded)
		for ; len(ops) >= 2; ops = ops[2:] {
			apply(r, n, ops[0], ops[1], value)
		}
		checkEdited(t, r, n)
	})
}

func TestUnedited(t *testing.T) {
	raw := marshal(t, sample(2))
	raw = append(raw, 0xf8, 0xff, 0x01, 0x80, 0x00) // an unknown field, its number not as short as can be
	r := parse(t, raw)
	render(r)
	if got := r.AppendTo([]byte("x")); !bytes.Equal(got[1:], raw) {
		t.Errorf("a request that was only read gives other bytes")
	}
}

// TestEditInvalidText: a plugin's bad text does not cost the batch.
func TestEditInvalidText(t *testing.T) {
	r := parse(t, marshal(t, sample(1)))
	for s := range r.Spans() {
		s.SetName("n\xff")
		s.SetStatus(2, "m\xff\xfe")
		s.SetAttribute(attribute.StringSlice("k\xff", []string{"v\xff"}))
		if _, ok := s.Attribute("k\uFFFD"); !ok {
			t.Errorf("the key is not read as it will be written")
		}
	}
	got := unmarshal(t, r.AppendTo(nil)).ResourceSpans[0].ScopeSpans[0].Spans[0]
	kv := got.Attributes[len(got.Attributes)-1]
	texts := []string{got.Name, got.Status.Message, kv.Key, kv.Value.GetArrayValue().Values[0].GetStringValue()}
	if d := gocmp.Diff([]string{"n\uFFFD", "m\uFFFD", "k\uFFFD", "v\uFFFD"}, texts); d != "" {
		t.Errorf("texts (-want +got):\n%s", d)
	}
}

// TestEditWhileReading: an edit inside a loop is seen by it, and does not upset
// it.
func TestEditWhileReading(t *testing.T) {
	r := parse(t, marshal(t, sample(1)))
	for s := range r.Spans() {
		var keys []string
		for k := range s.Attributes() {
			keys = append(keys, k)
			if k == "http.route" {
				s.DeleteAttribute("twice")
				s.SetAttribute(attribute.Int("added", 1))
			}
		}
		if d := gocmp.Diff([]string{"http.route", "", "last", "added"}, keys); d != "" {
			t.Errorf("keys (-want +got):\n%s", d)
		}
	}
}
