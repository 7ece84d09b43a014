package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/printable"
)

const pluginDevLong = `Build the plugin in Go in FOLDER, and again after each change of its packages or of the
file of --config. Each build gets the same spans, and the difference to the last build
is printed: the output, a processor plugin's result as JSON, and the accounting. An
exporter sends the spans to its back end. Ctrl-C ends the command.

After "--", a program is started as a service with the plugin: a processor plugin
before the exporter of SERVE_TRACING_EXPORTER_PLUGIN, or else before console. Its admin
listener is at SERVE_ADMIN_PORT, or else 8001. It replaces the plugin after each build,
and ends with this command (on macOS not if the command is killed).

The spans are those of --spans, or the first twenty of the last batch that the plugin
gets in the program or in the service of --admin, or a built-in span. A service of
--admin needs SERVE_ADMIN_CAPTURE=true, the built file in its list, and
SERVE_TRACING_PLUGIN_WATCH=500ms.`

const pluginDevExample = `  servetrace plugin dev ./tenant -- ./bin/hello`

type devFlags struct{ admin, plugin, spans, format, config, file string }

func newPluginDev(s settings, environ []string) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:     "dev FOLDER [-- PROGRAM [ARGUMENT...]]",
		Short:   "Build a plugin after each change, and show the difference in its output",
		Long:    pluginDevLong,
		Example: pluginDevExample,
		Args: func(cmd *cobra.Command, list []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				if at < len(list) {
					return oneArg("FOLDER")(cmd, list[:at])
				}
				return usagef("no program follows --")
			}
			return oneArg("FOLDER")(cmd, list)
		},
		RunE: func(cmd *cobra.Command, list []string) error {
			l, err := f.loop(cmd, s, list[0])
			if err != nil {
				return err
			}
			err = l.run(cmd.Context(), list[1:], environ)
			if cmd.Context().Err() != nil && errors.Is(err, context.Cause(cmd.Context())) {
				l.say("stopped")
				return nil // a signal is the ordinary end of this command
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.admin, "admin", "", "`address` of a service's admin listener, as for status")
	flags.StringVar(&f.plugin, "plugin", "", "`name` of the plugin in the service (default: that of its file)")
	flags.StringVar(&f.spans, "spans", "", "`FILE` of spans")
	flags.StringVar(&f.format, "format", formatJSON, "form of the spans: `json|proto`")
	flags.StringVar(&f.config, "config", "", "`FILE` with the plugin's configuration")
	flags.StringVar(&f.file, "file", "", "`FILE` to build (default: in FOLDER, with its name)")
	return cmd
}

// loop checks the flags, and returns the loop for the package in a folder.
func (f devFlags) loop(cmd *cobra.Command, s settings, folder string) (*devLoop, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, usagef("FOLDER %s: %w", folder, cmp.Or(err, errors.New("it is a file; name the folder of the package, such as \".\"")))
	}
	l := &devLoop{
		s: s, out: &lockedWriter{w: cmd.OutOrStdout()}, config: f.config,
		build: goBuild{folder: folder, file: cmp.Or(f.file, filepath.Join(folder, filepath.Base(folder)))},
	}
	if module, err := l.build.command(cmd.Context(), "env", "GOMOD"); err == nil && strings.TrimSpace(module) == os.DevNull {
		return nil, usagef("FOLDER %s: there is no go.mod in it or above it; type go mod init there, or write a plugin with servetrace plugin new", folder)
	}
	if f.config != "" {
		if l.config, err = filepath.Abs(f.config); err != nil {
			return nil, err
		}
		l.build.more = []string{l.config}
	}
	l.build.watched = append(l.build.more, folder)
	if l.build.file, err = filepath.Abs(l.build.file); err != nil {
		return nil, err
	}
	item, err := itemOf(l.build.file)
	if err != nil {
		return nil, err
	}
	l.name = cmp.Or(f.plugin, item.name)
	if f.admin != "" {
		if l.at, err = statusURL("--admin", f.admin); err != nil {
			return nil, err
		}
	}
	if f.spans != "" {
		l.fixed, err = readSpans(cmd.Context(), "spans", f.spans, f.format, cmd.InOrStdin())
	}
	return l, err
}

// devLoop builds a plugin after each change, runs it with spans, and compares its output with
// the output of the previous build.
type devLoop struct {
	s      settings
	out    io.Writer
	build  goBuild
	config string    // path of the file of --config, or empty
	name   string    // name of the plugin in the service
	fixed  []request // the spans of --spans, or nil
	at     string    // address of the service's status in JSON; empty if there is no service
	last   lastBatch // the last batch that the plugin got in the service
	text   string    // output of the previous build
	ran    []request // the spans that the previous build got; nil before the first build
}

// say prints a line about the loop.
func (l *devLoop) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l.out, "dev: "+format+"\n", args...) // the loop returns the error of its next write, which fails, too
}

// run builds the plugin, and again after each change, until ctx or the program ends. It
// starts the program after the first build that works.
func (l *devLoop) run(ctx context.Context, program, environ []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := os.MkdirAll(l.build.aside(), 0o755); err != nil {
		return err
	}
	defer l.build.clean()
	var service devService
	defer func() {
		cancel(nil)
		service.stop()
	}()
	following := false    // the goroutine of follow was started
	var changed time.Time // time of the last change; zero before the first one
	for {
		processor, err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			l.say("%s", printable.Lines(err.Error()))
		case len(program) > 0:
			if err := service.start(l, program, environ, processor, cancel); err != nil {
				return err
			}
			program = nil
		}
		if l.at != "" && !following && l.fixed == nil {
			following = true
			service.running.Go(func() { l.last.follow(ctx, l) }) // ends with ctx
		}
		wait, endWait := context.WithCancel(ctx)
		if build := changed; err == nil && l.at != "" && !build.IsZero() {
			service.running.Go(func() { l.awaitSwap(wait, build) }) // ends at the next change
		}
		changed, err = l.build.awaitChange(ctx)
		endWait()
		if err != nil {
			return context.Cause(ctx)
		}
	}
}

// step builds the plugin, sends it the spans, and prints the difference to the output of the
// previous build. It reports whether the plugin is a processor.
func (l *devLoop) step(ctx context.Context) (processor bool, err error) {
	began := time.Now()
	if err := l.build.run(ctx); err != nil {
		return false, err
	}
	l.say("built %s in %v", l.build.file, time.Since(began).Round(10*time.Millisecond))
	spans := l.spans()
	text, processor, err := l.try(ctx, l.build.file, spans)
	if err != nil {
		return processor, err
	}
	before := l.text
	if l.ran != nil && !sameRequests(l.ran, spans) {
		if before, _, err = l.try(ctx, l.build.before(), spans); err != nil {
			before = "" // the previous build cannot run
		}
	}
	l.text, l.ran = text, spans
	switch difference := diff.Diff("before", []byte(before), "after", []byte(text)); {
	case before == "":
		_, err = io.WriteString(l.out, text)
	case len(difference) == 0:
		l.say("the output is the same")
	default:
		_, difference, _ = bytes.Cut(difference, []byte("\n")) // without the first line, "diff before after"
		_, err = l.out.Write(difference)
	}
	return processor, err
}

// devSpans is the largest number of spans of the service's batch that a build gets, so that
// the output stays short.
const devSpans = 20

// spans returns the spans for a build: the spans of --spans, or else the first spans of the
// service's last batch, or else the spans of the previous build, or else a built-in span.
func (l *devLoop) spans() []request {
	switch batch := l.last.get(); {
	case l.fixed != nil:
		return l.fixed
	case batch != nil:
		if data, spans, err := otlpwire.Cut(batch, 0, devSpans, 0); err == nil && spans > 0 {
			return []request{{data: data, spans: spans}}
		}
	case l.ran != nil:
		return l.ran
	}
	return []request{builtInSpan(runSpan, runSpan, time.Now())}
}

// sameRequests reports whether both lists have the same bytes.
func sameRequests(a, b []request) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].data, b[i].data) {
			return false
		}
	}
	return true
}

// tryTimeout bounds a call of try.
const tryTimeout = 30 * time.Second

// try starts a build of the plugin and sends it the requests. It returns the results of a
// processor, the plugin's standard output and the accounting as one text.
func (l *devLoop) try(ctx context.Context, file string, requests []request) (text string, processor bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("%v have passed", tryTimeout))
	defer cancel()
	cfg, err := l.s.one(ctx, file, l.config)
	if err != nil {
		return "", false, err
	}
	output, err := os.CreateTemp("", "servetrace-dev-")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = errors.Join(output.Close(), os.Remove(output.Name())) }()
	var results, logged, account bytes.Buffer
	got, err := send(ctx, cfg, requests, &results, &logged, host.WithOutput(output))
	if got == nil {
		return "", false, fmt.Errorf("%w\n%s", err, logged.String())
	}
	var all strings.Builder
	for line := range bytes.Lines(results.Bytes()) {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, line, "", "  "); err != nil {
			return "", false, err
		}
		all.Write(pretty.Bytes())
	}
	printed, readErr := os.ReadFile(output.Name())
	all.Write(printed)
	err = errors.Join(err, readErr, got.write(&account, "sent"))
	if n := all.Len(); n > 0 && all.String()[n-1] != '\n' {
		all.WriteByte('\n')
	}
	all.Write(account.Bytes())
	if err != nil { // an error, such as a crash of the plugin, is a part of the text
		all.WriteString(err.Error() + "\n")
	}
	return printable.Lines(all.String()), got.processor, nil
}

// swapLate is the time after which awaitSwap prints why the service does not run the new
// build yet.
const swapLate = 10 * time.Second

// awaitSwap waits until the service runs the new build, and prints the time that has passed
// since the change of the code.
func (l *devLoop) awaitSwap(ctx context.Context, changed time.Time) {
	late := time.NewTimer(swapLate)
	defer late.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := askStatus(ctx, l.at)
		for _, p := range status.Plugins {
			if p.Name == l.name && p.State == host.StateReady.String() && p.Since.After(changed) && !p.Changed {
				l.say("the service runs it, pid %d, %v after the change", p.PID, p.Since.Sub(changed).Round(10*time.Millisecond))
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			l.say("the service does not run the new build yet: %s", l.swapCause(status, err))
			tick.Reset(time.Second)
		case <-tick.C:
		}
	}
}

// swapCause returns the reason why the service does not run the new build yet. err is the
// error of the request for the status.
func (l *devLoop) swapCause(status admin.Status, err error) string {
	for _, p := range status.Plugins {
		if p.Name == l.name {
			if p.State != host.StateReady.String() {
				return fmt.Sprintf("the plugin is %s: %s", p.State, p.Cause)
			}
			return fmt.Sprintf("a new build takes over when it has delivered spans, so send the service a request; "+
				"if that does not help, its log has the reason (a service of --admin needs %s=500ms)", host.EnvPluginWatch)
		}
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("it has no plugin %q; name it with --plugin", l.name)
}
