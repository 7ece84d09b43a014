package main

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
)

const pluginNewLong = `Write the module of a new plugin, which builds, and passes its tests and "servetrace
plugin test". --kind processor is a plugin that changes spans before all exporters.
Nothing is overwritten.

go.mod requires the version of this command. A command that was built from a clone has
none: the module then uses the clone of --replace, or else the clone that has the
command or the working folder.`

const pluginNewExample = `  servetrace plugin new acme --kind exporter --module example.com/traces/acme --dir ./plugins/acme`

func newPluginNew() *cobra.Command {
	var s scaffold
	cmd := &cobra.Command{
		Use:               "new NAME --kind processor|exporter",
		Short:             "Write the module of a new plugin",
		Long:              pluginNewLong,
		Example:           pluginNewExample,
		Args:              oneArg("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, list []string) error {
			s.Name = list[0]
			info, _ := debug.ReadBuildInfo()
			return writePlugin(cmd.OutOrStdout(), s, info)
		},
	}
	flags := cmd.Flags()
	flags.StringVar((*string)(&s.Kind), "kind", "", "kind of the plugin: `processor|exporter` (required)")
	flags.StringVar(&s.Module, "module", "", "`path` of the module (default example.org/NAME)")
	flags.StringVar(&s.Dir, "dir", "", "`folder` to write to (default ./NAME)")
	flags.StringVar(&s.Replace, "replace", "", "`folder` of a clone of servetrace to build against")
	return cmd
}

// writePlugin writes the files of the new module, and prints their names and the commands to
// type next. info is the build information of this binary.
func writePlugin(w io.Writer, s scaffold, info *debug.BuildInfo) error {
	if err := s.settle(); err != nil {
		return err
	}
	base, err := s.base(info)
	if err != nil {
		return err
	}
	files, err := s.render(base)
	if err != nil {
		return err
	}
	if err := create(s.Dir, files); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := fmt.Fprintln(w, "wrote", filepath.Join(s.Dir, f.name)); err != nil {
			return err
		}
	}
	first := ""
	if s.Dir != "." {
		first = "  cd " + shellWord(s.Dir) + "\n"
	}
	if base.replace == "" {
		first += "  go mod tidy    # once: downloads the dependencies\n"
	}
	_, err = fmt.Fprintf(w, `
Next:

%s  go test ./...
  go build -o %s .
  servetrace plugin test ./%[2]s
  %[3]s your-service
`, first, s.Name, s.Setting())
	return err
}
