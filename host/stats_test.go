package host

import (
	"fmt"
	"strings"
	"testing"
)

func TestNamesOfProcessorsAreBounded(t *testing.T) {
	books := newLedger()
	books.filter("redact", 1)
	for i := range 1000 {
		books.filter(fmt.Sprintf("drop-%d", i), 2)
		books.filter(strings.Repeat("x", 1000+i), 1)
	}
	books.filter("redact", 1)
	if got := len(books.filtered); got > mostProcessors+1 {
		t.Errorf("%d names in the books, want %d and %q at most", got, mostProcessors, otherProcessors)
	}
	if got := books.filtered["redact"]; got != 2 {
		t.Errorf("redact has %d spans, want 2", got)
	}
	if got := total(books.filtered); got != 3002 {
		t.Errorf("%d spans in the books, want 3002", got)
	}
}
