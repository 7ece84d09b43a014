package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/internal/wire"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the Go release, the commit and the plugin protocol",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText returns the output of "servetrace version" and "servetrace --version".
func versionText() string {
	var text strings.Builder
	info, _ := debug.ReadBuildInfo()
	_ = writeVersion(&text, info) // a write to a Builder never fails
	return text.String()
}

// writeVersion writes the build information of this binary. The version and the commit are
// "unknown" if info is nil, as in a binary that was built without module support.
func writeVersion(w io.Writer, info *debug.BuildInfo) error {
	version, commit := "unknown", "unknown"
	if info != nil {
		version = info.Main.Version
		commit = commitOf(info)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "version\t%s\n", version)
	fmt.Fprintf(table, "go\t%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(table, "commit\t%s\n", commit)
	fmt.Fprintf(table, "plugin protocol\t%d\n", wire.ProtocolVersion)
	return table.Flush()
}

// commitOf returns the commit that the binary was built from, with "(modified)" if the
// work tree had changes. It returns "unknown" if the build information has no commit.
func commitOf(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := settings["vcs.revision"]
	switch {
	case commit == "":
		return "unknown"
	case settings["vcs.modified"] == "true":
		return commit + " (modified)"
	}
	return commit
}
