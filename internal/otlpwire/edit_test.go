package otlpwire

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
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

// naive decodes the request, edits it and encodes it. Its spans are in the order of a
// Request's spans.
type naive struct {
	req       *request
	spans     []*tracepb.Span
	resources []*tracepb.ResourceSpans
	resource  []int                 // of each span
	scopes    []*tracepb.ScopeSpans // of each span
	dropped   map[*tracepb.Span]bool
}

func newNaive(req *request) *naive {
	n := &naive{req: req, resources: req.ResourceSpans, dropped: map[*tracepb.Span]bool{}}
	for i, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				n.spans = append(n.spans, s)
				n.resource = append(n.resource, i)
				n.scopes = append(n.scopes, ss)
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

// done returns the request without dropped spans, and without the groups that are empty
// because of them.
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

// sorted sorts attributes, because edits do not keep their order.
func sorted(req *request) *request {
	byKey := func(a, b *commonpb.KeyValue) int { return cmp.Compare(a.Key, b.Key) }
	for _, rs := range req.ResourceSpans {
		slices.SortStableFunc(rs.GetResource().GetAttributes(), byKey)
		for _, ss := range rs.ScopeSpans {
			slices.SortStableFunc(ss.GetScope().GetAttributes(), byKey)
			for _, s := range ss.Spans {
				slices.SortStableFunc(s.Attributes, byKey)
				for _, e := range s.Events {
					slices.SortStableFunc(e.Attributes, byKey)
				}
				for _, l := range s.Links {
					slices.SortStableFunc(l.Attributes, byKey)
				}
			}
		}
	}
	return req
}

var opKeys = []string{"", "http.route", "twice", "new", "service.name", "a much longer key that changes how long a length is" + strings.Repeat("!", 100)}

// Edits that apply does, by number.
const (
	opSet = iota
	opSetInLoop
	opDelete
	opName
	opStatus
	opDrop
	opSetResource
	opDeleteResource
	opSetEvent
	opDeleteEvent
	opNameEvent
	opSetLink
	opDeleteLink
	opSetScope
	opDeleteScope
	opAdd
	opCount
)

// apply does one edit both ways. what chooses the edit and the key, where chooses the
// span and its event or link.
func apply(r *Request, n *naive, what, where byte, value string) {
	spans := slices.Collect(r.all())
	if len(spans) == 0 {
		return
	}
	i := int(where%8) % len(spans)
	s, want := spans[i], n.spans[i]
	rs := n.resources[n.resource[i]]
	key := opKeys[int(what/opCount)%len(opKeys)]
	switch what % opCount {
	case opSet, opSetInLoop:
		for kv := range s.Attributes() {
			if string(kv.Key) == key && what%opCount == opSetInLoop {
				s.SetAttribute(attribute.String(key, value))
			}
		}
		s.SetAttribute(attribute.String(key, value))
		want.Attributes = naiveSet(want.Attributes, key, value)
	case opDelete:
		s.DeleteAttribute(key)
		want.Attributes = naiveDelete(want.Attributes, key)
	case opName:
		s.SetName(value)
		want.Name = value
	case opStatus:
		s.SetStatus(int32(where)-1, value)
		if want.Status == nil {
			want.Status = &tracepb.Status{}
		}
		want.Status.Code, want.Status.Message = tracepb.Status_StatusCode(int32(where)-1), value
	case opDrop:
		s.Drop()
		n.dropped[want] = true
	case opSetResource:
		s.Resource().SetAttribute(attribute.String(key, value))
		if rs.Resource == nil {
			rs.Resource = &resourcepb.Resource{}
		}
		rs.Resource.Attributes = naiveSet(rs.Resource.Attributes, key, value)
	case opDeleteResource:
		s.Resource().DeleteAttribute(key)
		if rs.Resource != nil {
			rs.Resource.Attributes = naiveDelete(rs.Resource.Attributes, key)
		}
	case opSetScope:
		s.Scope().SetAttribute(attribute.String(key, value))
		ss := n.scopes[i]
		if ss.Scope == nil {
			ss.Scope = &commonpb.InstrumentationScope{}
		}
		ss.Scope.Attributes = naiveSet(ss.Scope.Attributes, key, value)
	case opDeleteScope:
		s.Scope().DeleteAttribute(key)
		if ss := n.scopes[i]; ss.Scope != nil {
			ss.Scope.Attributes = naiveDelete(ss.Scope.Attributes, key)
		}
	default:
		applyToChildren(s, want, what%opCount, int(where/8), key, value)
	}
}

// applyToChildren does one edit to an event or a link.
func applyToChildren(s Span, want *tracepb.Span, op byte, which int, key, value string) {
	switch op {
	case opSetEvent, opDeleteEvent, opNameEvent:
		if len(want.Events) == 0 {
			return
		}
		i := which % len(want.Events)
		e, want := slices.Collect(s.Events())[i], want.Events[i]
		switch op {
		case opSetEvent:
			e.SetAttribute(attribute.String(key, value))
			want.Attributes = naiveSet(want.Attributes, key, value)
		case opDeleteEvent:
			e.DeleteAttribute(key)
			want.Attributes = naiveDelete(want.Attributes, key)
		default:
			e.SetName(value)
			want.Name = value
		}
	case opSetLink, opDeleteLink:
		if len(want.Links) == 0 {
			return
		}
		i := which % len(want.Links)
		l, want := slices.Collect(s.Links())[i], want.Links[i]
		if op == opSetLink {
			l.SetAttribute(attribute.String(key, value))
			want.Attributes = naiveSet(want.Attributes, key, value)
		} else {
			l.DeleteAttribute(key)
			want.Attributes = naiveDelete(want.Attributes, key)
		}
	case opAdd:
		if which%2 == 0 {
			s.AddEvent(value, uint64(which), attribute.String(key, value), attribute.Int("n", which))
			want.Events = append(want.Events, &tracepb.Span_Event{
				Name: value, TimeUnixNano: uint64(which),
				Attributes: []*commonpb.KeyValue{text(key, value), integer("n", int64(which))},
			})
			return
		}
		s.AddLink([16]byte{1, byte(which)}, [8]byte{2}, value, uint32(which), attribute.String(key, value))
		want.Links = append(want.Links, &tracepb.Span_Link{
			TraceId: append([]byte{1, byte(which)}, make([]byte, 14)...), SpanId: []byte{2, 0, 0, 0, 0, 0, 0, 0},
			TraceState: value, Flags: uint32(which), Attributes: []*commonpb.KeyValue{text(key, value)},
		})
	}
}

// all goes through the dropped spans too.
func (r *Request) all() func(func(Span) bool) {
	return func(yield func(Span) bool) {
		for i := range r.entries[ofSpan] {
			if !yield(r.Span(i)) {
				return
			}
		}
	}
}

// checkReads compares the views with the naive way, before anything is written.
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
		checkAttributes(t, n.scopes[i-1].GetScope().GetAttributes(), s.Scope().Attributes(), s.Scope().Attribute)
		checkChildren(t, s, want)
	}
}

func checkChildren(t *testing.T, s Span, want *tracepb.Span) {
	t.Helper()
	events, links := slices.Collect(s.Events()), slices.Collect(s.Links())
	if len(events) != len(want.Events) || len(links) != len(want.Links) {
		t.Fatalf("%d events, %d links, want %d, %d", len(events), len(links), len(want.Events), len(want.Links))
	}
	for i, e := range events {
		if want := want.Events[i]; e.Name() != want.Name || e.Time() != want.TimeUnixNano {
			t.Errorf("event %d is %q at %d, want %q at %d", i, e.Name(), e.Time(), want.Name, want.TimeUnixNano)
		}
		checkAttributes(t, want.Events[i].Attributes, e.Attributes(), e.Attribute)
	}
	for i, l := range links {
		if want := want.Links[i]; l.TraceState() != want.TraceState || l.Flags() != want.Flags {
			t.Errorf("link %d has state %q and flags %d, want %q and %d", i, l.TraceState(), l.Flags(), want.TraceState, want.Flags)
		}
		checkAttributes(t, want.Links[i].Attributes, l.Attributes(), l.Attribute)
	}
}

func checkAttributes(t *testing.T, want []*commonpb.KeyValue, all iter.Seq[attribute.KeyValue], find func(string) (attribute.Value, bool)) {
	t.Helper()
	line := func(key string, v attribute.Value) string { return fmt.Sprintf("%q=%v:%v", key, v.Type(), v) }
	var wants, gots []string
	last := map[string]attribute.Value{}
	for _, kv := range want {
		v := (&Request{}).value(part{raw: marshal(t, kv.Value)}, maxDepth)
		wants = append(wants, line(kv.Key, v))
		last[kv.Key] = v
	}
	for kv := range all {
		gots = append(gots, line(string(kv.Key), kv.Value))
	}
	slices.Sort(wants)
	slices.Sort(gots)
	if d := gocmp.Diff(wants, gots); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
	for _, key := range append(opKeys, slices.Collect(maps.Keys(last))...) {
		v, ok := find(key)
		if value, want := last[key]; ok != want || line(key, v) != line(key, value) {
			t.Errorf("attribute %q = %v, %v, want %v, %v", key, v, ok, value, want)
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
	if !bytes.Equal(r.AppendTo(nil), patched(t, r)) {
		t.Errorf("another result by a patch")
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
		"replace an attribute":             {{0 + 16, 0, "/b"}},
		"one is left of several":           {{0 + 32, 1, "x"}},
		"add one to every span":            {{0 + 48, 0, "x"}, {0 + 48, 1, "x"}, {0 + 48, 2, "x"}, {0 + 48, 3, "x"}, {0 + 48, 4, "x"}, {0 + 48, 5, "x"}},
		"set twice":                        {{0 + 48, 0, "x"}, {0 + 48, 0, "y"}, {0, 0, "z"}},
		"delete several":                   {{2 + 32, 0, ""}},
		"delete what is not there":         {{2 + 48, 0, ""}},
		"set, then delete":                 {{0 + 48, 0, "x"}, {2 + 48, 0, ""}, {0 + 16, 0, "x"}, {2 + 16, 0, ""}},
		"delete, then set":                 {{2 + 32, 0, ""}, {0 + 32, 0, "x"}},
		"longer lengths everywhere":        {{0 + 16, 0, long}, {0 + 80, 0, long}, {3, 3, long}, {4, 4, long}, {6 + 80, 0, long}},
		"shorter lengths":                  {{2, 0, ""}, {2 + 16, 0, ""}, {3, 0, ""}, {4, 0, ""}},
		"names":                            {{3, 0, "other"}, {3, 5, ""}},
		"status":                           {{4, 0, "negative"}, {4, 1, ""}, {4, 2, "ok"}},
		"drop one":                         {{5, 0, ""}},
		"drop a scope":                     {{5, 0, ""}, {5, 1, ""}, {5, 1, ""}},
		"drop a resource, edit after it":   {{5, 0, ""}, {5, 1, ""}, {5, 2, ""}, {5, 3, ""}, {3, 4, "x"}},
		"drop all":                         {{5, 0, ""}, {5, 1, ""}, {5, 2, ""}, {5, 3, ""}, {5, 4, ""}, {5, 5, ""}},
		"edit, then drop":                  {{0 + 16, 0, "x"}, {5, 0, ""}},
		"drop the last scope of the first": {{5, 2, ""}, {5, 3, ""}, {3, 4, "x"}},
		"resource":                         {{6 + 64, 0, "other"}, {6 + 48, 0, "new"}, {7, 0, ""}},
		"resource where there is none":     {{6 + 48, 5, "new"}},
		"resource and its spans":           {{6 + 64, 1, "other"}, {7 + 48, 1, ""}, {3, 3, "name"}},
		"scope":                            {{opSetScope + 48, 0, "x"}, {opDeleteScope, 1, ""}, {opName, 3, "name"}},
		"scope of dropped spans":           {{opSetScope + 48, 0, "x"}, {opDrop, 0, ""}, {opDrop, 1, ""}},
		"events":                           {{opSetEvent + 16, 0, "/b"}, {opDeleteEvent + 48, 0, ""}, {opNameEvent, 8, long}, {opSetEvent + 80, 1, long}},
		"an event twice, backwards":        {{opNameEvent, 8, "b"}, {opNameEvent, 0, "a"}, {opSetEvent + 48, 8, "b"}, {opNameEvent, 8, ""}},
		"links":                            {{opSetLink + 16, 0, long}, {opDeleteLink + 16, 0, ""}, {opSetLink + 48, 1, "x"}},
		"events and links added":           {{opAdd + 16, 0, "x"}, {opAdd + 16, 8, "y"}, {opAdd, 16, long}, {opSetEvent + 16, 24, "z"}, {opSetLink + 16, 8, "z"}, {opNameEvent, 16, "n"}, {opNameEvent, 0, "first"}},
		"add, then drop":                   {{opAdd, 0, "x"}, {opDrop, 0, ""}},
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

// FuzzEdit compares edits of the bytes with edits of decoded messages, for all bytes that
// protobuf accepts as a request.
func FuzzEdit(f *testing.F) {
	plain, unknown := sample(2), sample(1)
	withUnknown(unknown.ProtoReflect())
	whole := marshal(f, plain)
	pieces := slices.Concat(wrap(slices.Concat(
		marshal(f, &tracepb.Span{Name: "a", Status: &tracepb.Status{Message: "m"}}),
		marshal(f, &tracepb.Span{Name: "b", Status: &tracepb.Status{Code: 2}}))), whole)
	for _, req := range [][]byte{whole, marshal(f, unknown), pieces} {
		for what := range byte(opCount) {
			f.Add(req, []byte{what, 0, what + opCount, 9, opAdd, 0, what + 3*opCount, 18, opDrop, 3}, "value")
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
		r.Release()
	})
}

func TestUnedited(t *testing.T) {
	raw := marshal(t, sample(2))
	raw = append(raw, 0xf8, 0xff, 0x01, 0x80, 0x00) // an unknown field, its number not as short as can be
	r := parse(t, raw)
	render(r)
	if patch := r.AppendPatch(nil); len(patch) > 0 {
		t.Errorf("a request that was only read has the patch %x", patch)
	}
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
		for kv := range s.Attributes() {
			keys = append(keys, string(kv.Key))
			if kv.Key == "http.route" {
				s.DeleteAttribute("twice")
				s.SetAttribute(attribute.Int("added", 1))
			}
		}
		if d := gocmp.Diff([]string{"http.route", "", "last", "added"}, keys); d != "" {
			t.Errorf("keys (-want +got):\n%s", d)
		}
	}
}
