package hazard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	page := "1. it comes back: **`host/TestBack`**<br>`internal/x/FuzzBack`\n\n" +
		"Another test is `./TestOther`.\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	rows, named, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	back, fuzz := Test{"TestBack", "host", true}, Test{"FuzzBack", "internal/x", false}
	if diff := cmp.Diff([]Row{{1, "it comes back", []Test{back, fuzz}}}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Test{back, fuzz, {"TestOther", ".", false}}, named); diff != "" {
		t.Errorf("all tests (-want +got):\n%s", diff)
	}
}
