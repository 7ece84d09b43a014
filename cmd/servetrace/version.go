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

// writeVersion writes the build information of the binary. With a nil info, as in a
// binary built without module support, the version and the commit are "unknown".
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

// commitOf returns the commit of the build, with "(modified)" if the work tree was not
// clean. It returns "unknown" if the build does not have it.
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
