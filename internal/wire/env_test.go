package wire_test

import (
	"testing"

	"github.com/servetrace/servetrace/internal/wire"
)

func TestDeclaredBy(t *testing.T) {
	patterns := []string{"DD_SITE", "DD_*", "TEAM"}
	for name, want := range map[string]string{
		"DD_SITE": "DD_SITE", "DD_SITES": "DD_*", "DD_": "DD_*", "DD": "", "TEAM": "TEAM", "TEAMS": "", "": "",
	} {
		if got := wire.DeclaredBy(patterns, name); got != want {
			t.Errorf("%q is declared by %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]bool{"PATH": true, "LC_TIME": true, "no_proxy": true, "PATHS": false, "LC": false, "LD_PRELOAD": false} {
		if wire.BaseVariable(name) != want {
			t.Errorf("BaseVariable(%q) is %t, want %t", name, !want, want)
		}
	}
}
