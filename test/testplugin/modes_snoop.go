package testplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Snooped is the data of its host that a plugin of mode "snoop" has seen.
type Snooped struct {
	PID int
	// Start is its start environment, Later its environment after Configure, Args its
	// command line and Config its configuration.
	Start, Later, Args []string
	Config             string
}

// snoop records everything it sees of its host, and reveals it in its log, in a
// warning, and in the error of each batch. With "at-start" it requests its variables in
// its start environment.
func snoop(arg string) {
	start := os.Environ()
	s := spec(record)
	s.EnvAtStart = arg == "at-start"
	s.Exporter = func(_ context.Context, setup pluginsdk.Setup) (pluginsdk.Exporter, error) {
		seen := Snooped{PID: os.Getpid(), Start: start, Later: os.Environ(), Args: os.Args, Config: string(setup.Config)}
		data, err := json.Marshal(seen)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(os.Args[0]+".snooped", data, 0o600); err != nil {
			return nil, err
		}
		all := seen.Config + " " + strings.Join(seen.Later, " ")
		var read map[string]any // a configuration that is not read is refused
		if err := setup.DecodeConfig(&read); err != nil {
			return nil, err
		}
		setup.Warn("exporter", all)
		setup.Log.Error("seen", "all", all)
		fmt.Fprintln(os.Stderr, all)
		return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error {
			return pluginsdk.Permanent(errors.New(all))
		}), nil
	}
	pluginsdk.Main(s)
}

// ReadSnooped returns the record of the plugin at path.
func ReadSnooped(t testing.TB, path string) Snooped {
	t.Helper()
	data, err := os.ReadFile(path + ".snooped")
	if err != nil {
		t.Fatal(err)
	}
	var seen Snooped
	if err := json.Unmarshal(data, &seen); err != nil {
		t.Fatal(err)
	}
	return seen
}
