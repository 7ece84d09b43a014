package wire_test

import (
	"maps"
	"testing"

	"github.com/servetrace/servetrace/internal/wire"
)

func TestReadFiltered(t *testing.T) {
	for _, c := range []struct {
		values []string
		counts map[string]uint64
		unread string
	}{
		{nil, nil, ""},
		{[]string{"a=2", "b=1", "a=3"}, map[string]uint64{"a": 5, "b": 1}, ""},
		{[]string{"a=2", "b", "c=-1"}, map[string]uint64{"a": 2}, `servetrace-filtered: "c=-1": want PROCESSOR=COUNT`},
		{[]string{"=1"}, nil, `servetrace-filtered: "=1": want PROCESSOR=COUNT`},
		{[]string{"x=y=4"}, nil, `servetrace-filtered: "x=y=4": want PROCESSOR=COUNT`},
	} {
		counts, unread := wire.ReadFiltered(c.values)
		if !maps.Equal(counts, c.counts) || (counts == nil) != (c.counts == nil) || unread != c.unread {
			t.Errorf("%q gives %v, %q, want %v, %q", c.values, counts, unread, c.counts, c.unread)
		}
	}
}
