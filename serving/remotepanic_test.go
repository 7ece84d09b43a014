package serving_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// trap is a value whose codec is hostile in the process that is called.
type trap struct{ Spring string }

func (t *trap) UnmarshalJSON(data []byte) error {
	switch {
	case strings.Contains(string(data), "panic"):
		panic("sprung")
	case strings.Contains(string(data), "exit"):
		runtime.Goexit()
	case strings.Contains(string(data), "fail"):
		return errors.New("sprung")
	}
	return nil
}

// egg is a result that cannot be encoded.
type egg struct{}

func (egg) MarshalJSON() ([]byte, error)  { panic("broken") }
func (*egg) UnmarshalJSON(_ []byte) error { return nil }

func traps() (d *serving.Deployment, take *serving.Handle[trap, string], lay *serving.Handle[string, egg]) {
	d = functions("B", serving.WithMaxOngoingRequests(1))
	take = serving.AddFunction(d, "take", func(context.Context, trap) (string, error) { return "taken", nil })
	lay = serving.AddFunction(d, "lay", func(context.Context, string) (egg, error) { return egg{}, nil })
	return d, take, lay
}

// TestPanicInACodecKeepsTheSlot: a call whose argument or result has a codec that panics,
// or ends the goroutine, fails, and the only slot is free afterwards.
func TestPanicInACodecKeepsTheSlot(t *testing.T) {
	there, _, _ := traps()
	b := callee(t, there)
	here, take, lay := traps()
	callerOf(t, nil2, []*rig{b}, here)
	ctx, cancel := context.WithTimeout(t.Context(), servingtest.Patience)
	defer cancel()
	for range 3 {
		for spring, want := range map[string]string{"panic": "panic: sprung", "exit": "Goexit", "fail": "sprung"} {
			if _, err := take.Call(ctx, trap{spring}); !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("decode, %s: %v, want %s", spring, err, want)
			}
		}
		if _, err := lay.Call(ctx, ""); !strings.Contains(fmt.Sprint(err), "panic: broken") {
			t.Errorf("encode: %v", err)
		}
	}
	if got, err := take.Call(ctx, trap{}); got != "taken" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	servingtest.Await(t, "the slot is free", func() bool { return b.ongoing() == 0 })
}
