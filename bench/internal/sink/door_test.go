package sink

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A door that is shut refuses, and one that is open again listens where it did.
func TestDoor(t *testing.T) {
	d, err := newDoor(http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.end(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(open string) {
		t.Helper()
		w := httptest.NewRecorder()
		d.takeDoor(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/door?open="+open, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("open=%s: %d %s", open, w.Code, w.Body)
		}
	}
	listens := func() bool {
		t.Helper()
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", d.address)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
	for _, open := range []string{"true", "false", "false", "true", "false", "true"} {
		ask(open)
		if got, want := listens(), open == "true"; got != want {
			t.Errorf("after open=%s it listens: %v", open, got)
		}
	}
}
