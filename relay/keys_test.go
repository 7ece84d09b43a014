package relay_test

import (
	"strings"
	"testing"

	"github.com/servetrace/servetrace/internal/servicefile"
	"github.com/servetrace/servetrace/relay"
)

// TestEveryKeyIsRead: the relay reads the variable of each of its keys in a service file,
// and there is a key for each variable that begins with SERVE_RELAY_.
func TestEveryKeyIsRead(t *testing.T) {
	asked := map[string]bool{}
	if _, err := relay.ConfigFromEnv(func(name string) string { asked[name] = true; return "" }); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, k := range servicefile.Keys() {
		if strings.HasPrefix(k.Path, "relay.") {
			keys[k.Variable] = true
			if !asked[k.Variable] {
				t.Errorf("%s: the relay does not read %s", k.Path, k.Variable)
			}
		}
	}
	for name := range asked {
		if strings.HasPrefix(name, "SERVE_RELAY_") && !keys[name] {
			t.Errorf("%s has no key in a service file", name)
		}
	}
}
