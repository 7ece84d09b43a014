package tracing

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Names are right however many there are, which is more than are kept.
func TestSpanNamesConcurrentSafe(t *testing.T) {
	var names spanNames
	long := strings.Repeat("m", longestName)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				n := fmt.Sprint(i % 300)
				for want, got := range map[string]string{
					"f D" + n + " m /r":      names.of("f", "D"+n, "m", "/r"),
					"f D " + n + " /r":       names.of("f", "D", n, "/r"),
					"f D m /" + n:            names.of("f", "D", "m", "/"+n),
					"f" + n + " D m ":        names.of("f"+n, "D", "m", ""),
					"g" + n + " D m":         names.of("g"+n, "D", "m"),
					"f D " + long + " /" + n: names.of("f", "D", long, "/"+n),
				} {
					if got != want {
						t.Errorf("%q, want %q", got, want)
					}
				}
			}
		})
	}
	all.Wait()
	for i := range names {
		if n := names[i].Load(); n != nil && len(n.text) > longestName {
			t.Errorf("a name of %d bytes is kept", len(n.text))
		}
	}
}
