package requestid_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/servetrace/servetrace/serving/internal/requestid"
)

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent string
		kept bool
	}{
		{"empty", "", false},
		{"uuid", "0b9f1c0e-7f3a-4c6b-9d52-2f1f0b6a7c11", true},
		{"load balancer's", "Root=1-67891233-abcdef012345678912345678", true},
		{"base64", "q83vEjRWeJA+/w==", true},
		{"longest", strings.Repeat("a", 128), true},
		{"too long", strings.Repeat("a", 129), false},
		{"space", "a b", false},
		{"quote", `a"b`, false},
		{"backslash", `a\b`, false},
		{"comma", "a,b", false},
		{"percent", "a%0d%0ab", false},
		{"control", "a\x01", false},
		{"not ASCII", "ü", false},
		{"markup", "<a>", false},
	} {
		got := requestid.Fit(tt.sent)
		if tt.kept {
			if got != tt.sent {
				t.Errorf("%s: %q became %q", tt.name, tt.sent, got)
			}
			continue
		}
		if id, err := uuid.Parse(got); err != nil || id.Version() != 4 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%s: %q became %q, want a UUIDv4", tt.name, tt.sent, got)
		}
	}
}

// Over many ids, each random bit is once 0 and once 1, and the other six bits are fixed.
func TestNewIsRandom(t *testing.T) {
	var zeros, ones uuid.UUID
	for range 1000 {
		id, err := uuid.Parse(requestid.New())
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range id {
			zeros[i] |= ^b
			ones[i] |= b
		}
	}
	const wantZeros, wantOnes = "ffffffff-ffff-bfff-7fff-ffffffffffff", "ffffffff-ffff-4fff-bfff-ffffffffffff"
	if zeros.String() != wantZeros || ones.String() != wantOnes {
		t.Errorf("bits that were 0: %s, want %s; bits that were 1: %s, want %s", zeros, wantZeros, ones, wantOnes)
	}
}

func FuzzFit(f *testing.F) {
	f.Add("abc")
	f.Add("a\r\nSet-Cookie: x")
	fit := regexp.MustCompile(`^[-a-zA-Z0-9_.~:/+=@;|#]{1,128}$`)
	f.Fuzz(func(t *testing.T, sent string) {
		if got := requestid.Fit(sent); !fit.MatchString(got) || fit.MatchString(sent) && got != sent {
			t.Errorf("%q became %q", sent, got)
		}
	})
}
