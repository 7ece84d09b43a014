package settings_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/servetrace/servetrace/internal/settings"
)

// TestReader checks each kind of value, with blanks around it, and at and beyond its bounds.
func TestReader(t *testing.T) {
	const (
		size     = `X=%q: want a number of bytes from 1 to 1024GiB, such as 1048576, 512KiB or 32MiB`
		count    = `X=%q: want a whole number from 1 to 2147483647`
		duration = `X=%q: want a duration above zero, such as 200ms or 10s`
		boolean  = `X=%q: want true or false`
	)
	readSize := func(r *settings.Reader) any { return r.Size("X") }
	readCount := func(r *settings.Reader) any { return r.Count("X") }
	readDuration := func(r *settings.Reader) any { return r.Duration("X") }
	readBool := func(r *settings.Reader) any { return r.Bool("X") }
	for _, c := range []struct {
		value string
		read  func(*settings.Reader) any
		want  any
		fault string // with a place for the value; empty for none
	}{
		{" ", readSize, int64(0), ""},
		{" 8 ", readSize, int64(8), ""},
		{"\t2 KiB ", readSize, int64(2048), ""},
		{"1024GiB", readSize, int64(1) << 40, ""},
		{"1025GiB", readSize, int64(0), size},
		{"99999999999999999999", readSize, int64(0), size},
		{"0", readSize, int64(0), size},
		{"1KiBGiB", readSize, int64(0), size},
		{" 3 ", readCount, 3, ""},
		{"2147483647", readCount, math.MaxInt32, ""},
		{"2147483648", readCount, 0, count},
		{"99999999999999999999", readCount, 0, count},
		{"0", readCount, 0, count},
		{" 3s ", readDuration, 3 * time.Second, ""},
		{"0s", readDuration, time.Duration(0), duration},
		{" True ", readBool, true, ""},
		{"maybe", readBool, false, boolean},
	} {
		r := settings.NewReader(func(string) string { return c.value })
		if got := c.read(&r); got != c.want {
			t.Errorf("%q is read as %v, want %v", c.value, got, c.want)
		}
		want := "<nil>"
		if c.fault != "" {
			want = fmt.Sprintf(c.fault, c.value)
		}
		if got := fmt.Sprint(r.Err()); got != want {
			t.Errorf("%q: error\n%s\nwant\n%s", c.value, got, want)
		}
	}
}
