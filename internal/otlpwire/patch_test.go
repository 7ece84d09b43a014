package otlpwire

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// patched returns the request of r with its edits, by way of a patch.
func patched(tb testing.TB, r *Request) []byte {
	tb.Helper()
	got, err := ApplyPatch([]byte("before"), r.raw, r.AppendPatch(nil))
	if err != nil {
		tb.Fatal(err)
	}
	return got[len("before"):]
}

// TestPatchOfRandomEdits: 10,000 spans with random edits of every kind get the same bytes
// by a patch.
func TestPatchOfRandomEdits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "/b", "negative", strings.Repeat("long ", 30), strings.Repeat("longer ", 3000)}
	for spans := 0; spans < 10_000; {
		req := sample(1 + random.IntN(8))
		if random.IntN(2) == 0 {
			withUnknown(req.ProtoReflect())
		}
		raw := marshal(t, req)
		if random.IntN(4) == 0 { // in the other order, which an encoder may choose
			raw = reordered(t, req)
		}
		r, n := parse(t, raw), newNaive(unmarshal(t, raw))
		spans += len(n.spans)
		for range random.IntN(4 * len(n.spans)) {
			apply(r, n, byte(random.Uint32()), byte(random.Uint32()), texts[random.IntN(len(texts))])
		}
		if !bytes.Equal(patched(t, r), r.AppendTo(nil)) {
			t.Fatalf("another result by a patch, after %d spans", spans)
		}
		r.Release()
	}
}

// reordered returns a request in which each resource and scope follows its spans, and the
// first resource is in two pieces.
func reordered(tb testing.TB, req *request) []byte {
	tb.Helper()
	var out []byte
	for i, rs := range req.ResourceSpans {
		var inner []byte
		for _, ss := range rs.ScopeSpans {
			spans := &tracepb.ScopeSpans{Spans: ss.Spans}
			scope := &tracepb.ScopeSpans{Scope: ss.Scope, SchemaUrl: ss.SchemaUrl}
			inner = appendField(inner, 2, append(marshal(tb, spans), marshal(tb, scope)...))
		}
		resource := marshal(tb, &tracepb.ResourceSpans{Resource: rs.Resource})
		if inner = append(inner, resource...); i == 0 {
			inner = append(inner, resource...)
		}
		out = appendField(out, 1, inner)
	}
	return out
}

// TestPatchIsSmall: the patch of one attribute for each span has the attribute, the two
// lengths and little else.
func TestPatchIsSmall(t *testing.T) {
	req := batchOf(t, batch)
	r := parse(t, req)
	for s := range r.Spans() {
		s.SetAttribute(team)
	}
	if patch := r.AppendPatch(nil); len(patch) > 45*batch || len(patch)*6 > len(req) {
		t.Errorf("patch of %d bytes for %d spans of %d bytes", len(patch), batch, len(req))
	}
}

func TestApplyPatchRefuses(t *testing.T) {
	batch := []byte("0123456789")
	encode := func(splices ...*pluginv1.Splice) []byte { return marshal(t, &pluginv1.Patch{Splices: splices}) }
	huge := &pluginv1.Splice{Keep: 1<<32 - 1, Remove: 1<<32 - 1}
	for _, c := range []struct {
		name  string
		patch []byte
		want  string
	}{
		{"keep past the end", encode(&pluginv1.Splice{Keep: 11}), "splice at byte 0 of the patch keeps 11 and removes 0 bytes of the batch, which has only 10 more"},
		{"remove past the end", encode(&pluginv1.Splice{Keep: 4, Remove: 3}, &pluginv1.Splice{Keep: 2, Remove: 2}), "splice at byte 6 of the patch keeps 2 and removes 2 bytes of the batch, which has only 3 more"},
		{"largest numbers", encode(huge), "splice at byte 0 of the patch keeps 4294967295 and removes 4294967295 bytes of the batch, which has only 10 more"},
		{"cut off", encode(&pluginv1.Splice{Keep: 4, Insert: []byte("new")})[:6], "malformed patch at byte 0: length past the end"},
		{"malformed splice", []byte{0x0a, 0x01, 0x08}, "malformed patch at byte 2: bad varint"},
		{"too large", encode(&pluginv1.Splice{Insert: make([]byte, MaxPatched)}), "patched batch has 67108874 bytes: at most 67108864 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ApplyPatch([]byte("before"), batch, c.patch)
			if err == nil || err.Error() != c.want || string(got) != "before" {
				t.Errorf("result %q, error %v, want %s", got, err, c.want)
			}
		})
	}
}

// FuzzApplyPatch compares with the same on decoded splices, for all bytes.
func FuzzApplyPatch(f *testing.F) {
	for _, p := range []*pluginv1.Patch{
		{},
		{Splices: []*pluginv1.Splice{{Keep: 1, Remove: 2, Insert: []byte("new")}, {Remove: 7}}},
		{Splices: []*pluginv1.Splice{{Keep: 10}, {}, {Insert: []byte("end")}}},
	} {
		withUnknown(p.ProtoReflect())
		f.Add([]byte("0123456789"), marshal(f, p))
	}
	f.Fuzz(func(t *testing.T, batch, patch []byte) {
		var decoded pluginv1.Patch
		malformed := proto.Unmarshal(patch, &decoded)
		got, err := ApplyPatch(nil, batch, patch)
		if malformed != nil {
			if err == nil {
				t.Fatalf("accepted a patch that protobuf refuses: %v", malformed)
			}
			return
		}
		var want []byte
		left := batch
		for _, s := range decoded.GetSplices() {
			if uint64(s.GetKeep())+uint64(s.GetRemove()) > uint64(len(left)) {
				if err == nil {
					t.Fatalf("accepted a splice past the end: %v", s)
				}
				return
			}
			want = append(append(want, left[:s.GetKeep()]...), s.GetInsert()...)
			left = left[s.GetKeep()+s.GetRemove():]
		}
		if want = append(want, left...); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("result %x, error %v, want %x", got, err, want)
		}
	})
}
