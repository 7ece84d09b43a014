package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/internal/yamlfile"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

const pluginTestLong = `Check a plugin, in any language, against every rule of the contract between host and
plugin. Each rule starts processes of its own. The plugin gets the base variables, and
the variables of --env that it declares. --env NAME takes a value from this environment.

Standard output has a line for each rule: pass, FAIL or skip, with the cause. The exit
code is 1 if a rule failed.`

const pluginTestExample = `  servetrace plugin test ./acme --env ACME_URL=http://127.0.0.1:4318 --env ACME_TOKEN --junit report.xml`

type testFlags struct {
	env                      []string
	config, badConfig, junit string
	rules                    bool
}

func newPluginTest(s settings) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:     "test PATH",
		Short:   "Test a plugin against every rule of the contract",
		Long:    pluginTestLong,
		Example: pluginTestExample,
		Args: func(cmd *cobra.Command, list []string) error {
			if f.rules {
				return noArgs(cmd, list)
			}
			return oneArg("PATH")(cmd, list)
		},
		RunE: func(cmd *cobra.Command, list []string) error {
			if f.rules {
				return writeRules(cmd)
			}
			return f.test(cmd, s, list[0])
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.env, "env", nil, "`NAME=VALUE` of a variable for the plugin; may be repeated")
	flags.StringVar(&f.config, "config", "", "`FILE` with the plugin's configuration")
	flags.StringVar(&f.badConfig, "bad-config", "", "`FILE` with a configuration to refuse")
	flags.StringVar(&f.junit, "junit", "", "`FILE` for a report in JUnit's XML")
	flags.BoolVar(&f.rules, "rules", false, "list the rules, and start nothing")
	return cmd
}

func (f testFlags) test(cmd *cobra.Command, s settings, where string) error {
	path, err := executable(cmd.Context(), s, where)
	if err != nil {
		return err
	}
	opts, err := f.options(cmd.Context(), s.getenv)
	if err != nil {
		return err
	}
	shown := progress.Start(cmd.ErrOrStderr(), "plugin test", 0)
	report, err := plugintest.Check(cmd.Context(), plugintest.Binary(path), append(opts, plugintest.WithProgress(shown.At))...)
	shown.End()
	if err != nil {
		return err
	}
	if err := errors.Join(writeReport(cmd.OutOrStdout(), report), writeJUnit(f.junit, report)); err != nil {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return fmt.Errorf("called off: %w", context.Cause(cmd.Context()))
	}
	if n := report.Failed(); n > 0 {
		return fmt.Errorf("%s of %d failed", counted(n, "rule"), len(report.Results))
	}
	return nil
}

// executable returns the path of the plugin's file, which a host would run for where.
func executable(ctx context.Context, s settings, where string) (string, error) {
	if strings.HasPrefix(where, "unix://") {
		return "", usagef("%s: the suite starts and ends the plugin itself; name its executable", where)
	}
	if function, ok := strings.CutPrefix(where, "python:"); ok {
		return "", usagef("%s: the suite starts an executable; name a script that runs: exec python3 -m servetrace.runner %s \"$@\"", where, function)
	}
	cfg, err := s.one(ctx, where, "")
	if err != nil {
		return "", err
	}
	is := host.Inspect(ctx, cfg, false)[0]
	return is.Path, hint(is)
}

// options returns the options of the conformance suite for the flags.
func (f testFlags) options(ctx context.Context, getenv func(string) string) ([]plugintest.Option, error) {
	var environ []string
	for _, entry := range f.env {
		name, _, given := strings.Cut(entry, "=")
		switch {
		case name == "":
			if entry != "" {
				entry = "=…" // the value may be a secret
			}
			return nil, usagef("--env %q: want NAME=VALUE, or NAME for its value in this environment", entry)
		case !given && getenv(name) == "":
			continue
		case !given:
			entry += "=" + getenv(name)
		}
		environ = append(environ, entry)
	}
	opts := []plugintest.Option{plugintest.WithEnv(environ...)}
	for _, document := range []struct {
		flag, file string
		with       func([]byte) plugintest.Option
	}{
		{"config", f.config, plugintest.WithConfig},
		{"bad-config", f.badConfig, plugintest.WithBadConfig},
	} {
		if document.file == "" {
			continue
		}
		text, err := readFile(ctx, "--"+document.flag, document.file, nil, yamlfile.MaxBytes)
		if err != nil {
			return nil, err
		}
		opts = append(opts, document.with(text))
	}
	return opts, nil
}

// writeReport writes the report as printable text, because it quotes the plugin's output.
func writeReport(w io.Writer, report *plugintest.Report) error {
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		return err
	}
	_, err := io.WriteString(w, printable.Lines(text.String()))
	return err
}

// writeJUnit writes the report to a file, unless name is empty.
func writeJUnit(name string, report *plugintest.Report) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return usagef("--junit: %w", err)
	}
	if err := errors.Join(report.WriteJUnit(f), f.Close()); err != nil {
		return usagef("--junit: %w", err)
	}
	return nil
}

// writeRules lists the rules. They are in the report of any check. This check starts no
// plugin, because its context has ended.
func writeRules(cmd *cobra.Command) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	cancel()
	report, err := plugintest.Check(ctx, plugintest.InProcess(pluginsdk.Spec{}))
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, result := range report.Results {
		fmt.Fprintf(table, "%s\t%s\n", result.Rule, result.Title)
	}
	return table.Flush()
}
