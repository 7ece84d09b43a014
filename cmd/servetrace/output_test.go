package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestJSONIsPrintable: control characters of terminals are escaped, and the JSON has the
// same meaning.
func TestJSONIsPrintable(t *testing.T) {
	const hostile = "\x1b[2J \x7f \u009b2J \u202e \U000e0001 ünï <>&\"\\ 日本\n"
	var got bytes.Buffer
	if err := writeJSON(&got, []string{hostile}); err != nil {
		t.Fatal(err)
	}
	const want = "[\n  \"\\u001b[2J \\u007f \\u009b2J \\u202e \\udb40\\udc01 ünï <>&\\\"\\\\ 日本\\n\"\n]\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	var back []string
	if err := json.Unmarshal(got.Bytes(), &back); err != nil || back[0] != hostile {
		t.Errorf("it reads %q, %v", back, err)
	}
}
