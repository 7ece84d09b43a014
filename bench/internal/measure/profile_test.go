package measure

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProfilesAreWritten(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "case")
	stop, err := Profile(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"cpu", "heap", "block", "mutex"} {
		if info, err := os.Stat(prefix + "." + kind + ".pprof"); err != nil || info.Size() == 0 {
			t.Errorf("the %s profile: %v, %v", kind, info, err)
		}
	}
}
