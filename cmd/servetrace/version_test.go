package main

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteVersion(t *testing.T) {
	tail := "plugin protocol  1\n"
	platform := "go               " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}
	for _, c := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"no build info", nil, "version          unknown\n" + platform + "commit           unknown\n" + tail},
		{
			"not told", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			"version          (devel)\n" + platform + "commit           unknown\n" + tail,
		},
		{
			"clean", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}},
			"version          v1.2.3\n" + platform + "commit           0123abcd\n" + tail,
		},
		{
			"modified", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}},
			"version          v1.2.3\n" + platform + "commit           0123abcd (modified)\n" + tail,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := writeVersion(&got, c.info); err != nil {
				t.Fatalf("writeVersion: %v", err)
			}
			if diff := cmp.Diff(c.want, got.String()); diff != "" {
				t.Errorf("version (-want +got):\n%s", diff)
			}
		})
	}
}
