package archtest

import "testing"

// Most lines of code in a file; lines of comment and empty lines are free.
const (
	maxCodeLines = 500
	maxTestLines = 800
)

func TestFilesStayShort(t *testing.T) {
	for _, p := range loadRepository(t) {
		for _, f := range p.files {
			limit := maxCodeLines
			if f.test {
				limit = maxTestLines
			}
			if !f.generated && f.codeLines > limit {
				t.Errorf("%s: %d lines of code, the limit is %d: split it by noun", f.path, f.codeLines, limit)
			}
		}
	}
}
