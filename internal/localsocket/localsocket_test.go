package localsocket_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/internal/localsocket"
)

// TestListenBesideAnEndConcurrentSafe opens a socket while the previous listener closes.
// It gets the socket, or the error that another process listens there.
func TestListenBesideAnEndConcurrentSafe(t *testing.T) {
	folder, err := os.MkdirTemp("", "st") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "s.sock")
	for range 500 {
		old, err := localsocket.Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = old.Close()
		}()
		next, err := localsocket.Listen(path)
		<-ended
		if err == nil {
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("the socket of the next listener is gone: %v", err)
			}
			_ = next.Close()
		} else if !strings.Contains(err.Error(), "another process listens there") {
			t.Errorf("the next listener: %v", err)
		}
		if t.Failed() {
			return
		}
	}
}
