package otlpwire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// checkAsWhole applies a patch and compares CheckPatched with Check of the whole result.
// It reports whether the result is accepted, and false if the patch cannot be applied.
func checkAsWhole(tb testing.TB, batch, patch []byte) (accepted bool) {
	tb.Helper()
	result, err := ApplyPatch(nil, batch, patch)
	if err != nil {
		return false
	}
	want, _, wantErr := Check(result, math.MaxInt)
	got, err := CheckPatched(batch, patch, result)
	if (err != nil) != (wantErr != nil) || err == nil && got != want {
		tb.Fatalf("%d spans, %v; as a whole: %d spans, %v\nbatch %x\npatch %x", got, err, want, wantErr, batch, patch)
	}
	return err == nil
}

// editedSample returns a batch, and the patch of random edits.
func editedSample(tb testing.TB, random *rand.Rand) (batch, patch []byte) {
	tb.Helper()
	req := sample(1 + random.IntN(8))
	if random.IntN(2) == 0 {
		withUnknown(req.ProtoReflect())
	}
	batch = marshal(tb, req)
	if random.IntN(4) == 0 {
		batch = reordered(tb, req)
	}
	r, n := parse(tb, batch), newNaive(unmarshal(tb, batch))
	defer r.Release()
	for range random.IntN(4 * len(n.spans)) {
		apply(r, n, byte(random.Uint32()), byte(random.Uint32()), opKeys[random.IntN(len(opKeys))])
	}
	return batch, r.AppendPatch(nil)
}

// broken returns the patch with a few changes.
func broken(tb testing.TB, random *rand.Rand, batch, patch []byte) []byte {
	tb.Helper()
	p := &pluginv1.Patch{}
	if err := proto.Unmarshal(patch, p); err != nil {
		tb.Fatal(err)
	}
	for range 1 + random.IntN(3) {
		i := random.IntN(len(p.Splices) + 1)
		if i == len(p.Splices) {
			p.Splices = append(p.Splices, &pluginv1.Splice{Keep: uint32(random.IntN(20))})
		}
		s := p.Splices[i]
		switch random.IntN(6) {
		case 0:
			s.Keep += uint32(random.IntN(7)) - 3
		case 1:
			s.Remove += uint32(random.IntN(7)) - 3
		case 2: // keeps what was removed
			s.Keep, s.Remove = s.Keep+s.Remove, 0
		case 3: // in two parts, with a copy of a piece of the batch between them
			at := random.IntN(len(batch))
			piece := batch[at:min(len(batch), at+random.IntN(24))]
			first := uint32(random.IntN(int(s.GetKeep())%4096 + 1))
			s.Keep -= min(first, s.Keep)
			p.Splices = append(p.Splices[:i:i], append([]*pluginv1.Splice{{Keep: first, Insert: piece}}, p.Splices[i:]...)...)
		case 4:
			if n := len(s.Insert); n > 0 {
				s.Insert = bytes.Clone(s.Insert)
				s.Insert[random.IntN(n)] ^= 1 << random.IntN(8)
			}
		case 5:
			p.Splices = append(p.Splices[:i:i], p.Splices[i+1:]...)
		}
	}
	return marshal(tb, p)
}

func TestCheckPatchedIsCheck(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	accepted, refused := 0, 0
	for range 400 {
		batch, patch := editedSample(t, random)
		if !checkAsWhole(t, batch, patch) {
			t.Fatalf("the patch of edits is refused\nbatch %x\npatch %x", batch, patch)
		}
		for range 8 {
			if checkAsWhole(t, batch, broken(t, random, batch, patch)) {
				accepted++
			} else {
				refused++
			}
		}
	}
	if accepted < 200 || refused < 200 {
		t.Errorf("of the broken patches %d are accepted and %d are not: the test has too few of one kind", accepted, refused)
	}
}

// FuzzCheckPatched compares CheckPatched with Check, for all batches and patches.
func FuzzCheckPatched(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		batch, patch := editedSample(f, random)
		f.Add(batch, patch)
		f.Add(batch, broken(f, random, batch, patch))
	}
	f.Fuzz(func(t *testing.T, batch, patch []byte) {
		if _, _, err := Check(batch, math.MaxInt); err == nil {
			checkAsWhole(t, batch, patch)
		}
	})
}
