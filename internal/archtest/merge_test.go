package archtest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mergeMarks are the lines that git leaves where it could not merge; in halves,
// so that this file has none.
var mergeMarks = [][]byte{[]byte("<<<<" + "<<< "), []byte(">>>>" + ">>> ")}

// TestNoMarksOfMerges: in code they do not compile, but pages and scripts can have them.
func TestNoMarksOfMerges(t *testing.T) {
	root := moduleRoot(t)
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".tools", "bin", "node_modules", ".venv"}, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if slices.ContainsFunc(mergeMarks, func(mark []byte) bool { return bytes.HasPrefix(line, mark) }) {
				t.Errorf("%s: a merge was not finished: %s", name, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
