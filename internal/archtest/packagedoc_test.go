package archtest

import (
	"strings"
	"testing"
)

// TestEveryPackageSaysWhatItIs wants one package comment for each package, in
// one file: "Package name ..." for a library, any sentence for a command. A
// generated package is explained where it is generated from.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range loadRepository(t) {
		var documented []string
		for _, f := range p.files {
			if f.test || f.generated || f.doc == "" {
				continue
			}
			documented = append(documented, f.path)
			if want := "Package " + f.packageName + " "; f.packageName != "main" && !strings.HasPrefix(f.doc, want) {
				t.Errorf("%s: the package comment begins %q, want %q", f.path, firstWords(f.doc), want+"...")
			}
		}
		if p.handWritten() && len(documented) == 0 {
			t.Errorf("%s: no file has a package comment: say what it is, the life of its main object, what it does not do, and which file to open first", p.dir)
		}
		if len(documented) > 1 {
			t.Errorf("%s: the package comment is spread over %s: keep one", p.dir, strings.Join(documented, ", "))
		}
	}
}

// firstWords returns the first few words of a comment.
func firstWords(doc string) string {
	words := strings.Fields(doc)
	return strings.Join(words[:min(4, len(words))], " ")
}
