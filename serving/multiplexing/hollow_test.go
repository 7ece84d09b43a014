package multiplexing_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/multiplexing"
)

// hollow is an error whose methods panic on a nil pointer.
type hollow struct{ inner error }

func (e *hollow) Error() string { return e.inner.Error() }
func (e *hollow) Unwrap() error { return e.inner }

// TestHollowError returns a nil pointer as an error from a load: the load fails as a
// panic, and the process survives.
func TestHollowError(t *testing.T) {
	models := multiplexing.New(func(context.Context, string) (int, error) { return 0, (*hollow)(nil) })
	url := serve(t, serving.NewDeployment("D", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := models.Get(r.Context())
		http.Error(w, err.Error(), http.StatusTeapot)
	})))
	if got := get(t, url, "m"); !strings.Contains(got, `load model "m": panic: `) {
		t.Errorf("got %q", got)
	}
}
