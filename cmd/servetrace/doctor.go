package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/host"
)

const doctorLong = `Find out why there are no spans. The command checks the settings, the list of plugins,
the sampling ratio, and of each plugin the file, handshake, version, variables,
configuration, the address of its back end, and the delivery of one marked span (not of
a processor plugin). Each error has the next command to type, and ends the checks of its
plugin.

Run it in the environment of the service, as its user. With --admin, it also reads the
status page of a running service; then this environment may name no plugins.

The exit code is 1 for an error; warnings do not count.`

const doctorExample = `  servetrace doctor --config serve.yaml -o json`

type doctorFlags struct{ config, admin, output string }

func newDoctor(s settings, environ []string) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Find out why there are no spans",
		Long:    doctorLong,
		Example: doctorExample,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s, environ) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "service `FILE` (default: that of "+servetrace.EnvConfig+")")
	flags.StringVar(&f.admin, "admin", "", "`address` of a service's admin listener, as for status")
	flags.StringVarP(&f.output, "output", "o", outputText, "form of the report: `text|json`")
	return cmd
}

const outputText = "text"

func (f doctorFlags) run(cmd *cobra.Command, s settings, environ []string) error {
	at := ""
	if f.admin != "" {
		var err error
		if at, err = statusURL("--admin", f.admin); err != nil {
			return err
		}
	}
	path := cmp.Or(f.config, strings.TrimSpace(s.getenv(servetrace.EnvConfig)))
	unused, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unused.Close() }() // nothing is written to it
	d := doctor{
		s: settings{s.with(map[string]string{servetrace.EnvConfig: path})}, environ: environ, path: path, remote: at != "",
		report: &report{command: typedCommand(os.Args[0])}, unused: unused, stderr: cmd.ErrOrStderr(),
	}
	if f.output == outputText {
		d.report.w, d.report.marks = cmd.OutOrStdout(), marksFor(cmd.OutOrStdout(), s.getenv)
	}
	d.check(cmd.Context())
	if at != "" && cmd.Context().Err() == nil {
		checkService(cmd.Context(), d.report, at)
	}
	if cmd.Context().Err() != nil {
		return context.Cause(cmd.Context())
	}
	if f.output == formatJSON {
		err = writeJSON(cmd.OutOrStdout(), d.report)
	} else {
		err = d.report.err
	}
	return errors.Join(err, d.report.verdict())
}

// doctor checks the settings and the plugins of a service, and reports its findings.
type doctor struct {
	s       settings // the environment, with path as the value of SERVE_CONFIG
	environ []string
	path    string // path of the service file; empty if there is none
	remote  bool   // --admin is set, so a running service is checked after the plugins
	ratio   string // the setting of the sampling ratio with its value and origin, for a message
	report  *report
	unused  *os.File // /dev/null, which gets the output of the plugins
	stderr  io.Writer
}

// check checks the settings and then the plugins. It returns after a wrong setting, because
// a service would not start with it.
func (d *doctor) check(ctx context.Context) {
	cfg, ok := d.settings()
	if !ok || !d.list(ctx, cfg) {
		return
	}
	d.sampling(cfg)
	d.plugins(ctx, cfg)
}

// options returns the options of a host that writes its log to log, in JSON, and drops the
// output of its plugins.
func (d *doctor) options(log io.Writer) []host.Option {
	return []host.Option{host.WithLogger(newJSONLog(log)), host.WithOutput(d.unused)}
}
