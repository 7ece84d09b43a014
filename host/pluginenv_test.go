package host

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestDefaultOfMaxProcs: a plugin starts with a quarter of the processors, unless
// the operator says otherwise.
func TestDefaultOfMaxProcs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		name       string
		processors int
		config     Config
		want       string // empty: not set
	}{
		{"two processors", 2, Config{}, "1"},
		{"many processors", 17, Config{}, "4"},
		{"set for all", 8, Config{PluginMaxProcs: map[string]int{"": 3}}, "3"},
		{"set for another", 8, Config{PluginMaxProcs: map[string]int{"b": 3}}, "2"},
		{"the service's own", 8, Config{Environ: []string{"GOMAXPROCS=7"}, PluginEnv: map[string][]string{everyPlugin: {"GOMAXPROCS"}}}, "7"},
		{"the service's own, which it does not name", 8, Config{Environ: []string{"GOMAXPROCS=7"}}, "2"},
		{"the service's own, which is not set", 8, Config{PluginEnv: map[string][]string{"a": {"GOMAXPROCS"}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.GOMAXPROCS(c.processors)
			var want []string
			if c.want != "" {
				want = []string{"GOMAXPROCS=" + c.want}
			}
			got := slices.DeleteFunc(c.config.startEnviron("a"), func(kv string) bool { return !strings.HasPrefix(kv, "GOMAXPROCS=") })
			if !slices.Equal(got, want) {
				t.Errorf("starts with %q, want %q", got, want)
			}
		})
	}
}
