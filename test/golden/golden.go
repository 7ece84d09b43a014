// Package golden compares texts with files of testdata. The flag -update of go test writes
// the files.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag -update.
var Update = flag.Bool("update", false, "write the golden files, and the tables of documents that the test checks")

// Compare compares got with a file, whose path is below testdata.
func Compare(tb testing.TB, file, got string) {
	tb.Helper()
	path := filepath.Join("testdata", file)
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatalf("%v (go test -update writes the file)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
