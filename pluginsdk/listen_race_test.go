package pluginsdk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListenBesideOneThatEndsConcurrentSafe: a plugin that is started while the
// one before it ends gets the socket, or hears that another listens there.
func TestListenBesideOneThatEndsConcurrentSafe(t *testing.T) {
	folder, err := os.MkdirTemp("", "st") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "s.sock")
	for range 500 {
		old, err := listenAt(path)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			old.remove()
		}()
		next, err := listenAt(path)
		<-ended
		if err == nil {
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("the socket of the next one is gone: %v", err)
			}
			next.remove()
		} else if !strings.Contains(err.Error(), "another process listens there") {
			t.Errorf("the next one: %v", err)
		}
		if t.Failed() {
			return
		}
	}
}
