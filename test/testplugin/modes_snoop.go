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

// Snooped is what a plugin of mode "snoop" has seen of its host.
type Snooped struct {
	PID int
	// Start is the environment that it was started with, Later that after it was
	// configured, Args its command line and Config its document.
	Start, Later, Args []string
	Config             string
}

// snoop writes down what it sees of its host, and tells all of it to everybody:
// to its log, in a remark, and in the error of each batch. With "at-start" it
// wants its variables in its start environment.
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
		var read map[string]any // a document that nobody reads is refused
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

// ReadSnooped gives what the plugin at path has seen.
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
