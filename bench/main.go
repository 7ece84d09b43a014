// Command bench measures servetrace and its peers in one run with one sink, and
// compares the figures with their bounds.
//
//	bench run [-quick] [-shape REGEXP] [-row REGEXP] [-repeat N] [-out DIR]
//	bench soak [-for 1h] [-out DIR]             memory while the sink is down
//	bench gate [-shape REGEXP]                  check looser bounds, on any machine
//
// The exit status is 3, without a report, if other processes use the machine, and 1 if
// a row or the gate fails. README.md describes the rows. With the argument "child" the
// program is a child process of itself.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/serveload"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/spanpath"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/internal/progress"
)

// shapes returns all shapes, in the order in which they run.
func shapes() []suite.Shape {
	return slices.Concat(spanpath.Shapes(), serveload.Shapes())
}

// The exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
	exitBusy   = 3
)

var (
	errUsage  = errors.New("usage: bench run|gate|soak [flags]; bench run -h lists them")
	errFailed = errors.New("a row has failed, see the report")
	errGate   = errors.New("a claim is over its bound in every round: a change has made it dearer, or the bound is wrong")
	errSoak   = errors.New("the soak has failed, see its findings")
)

func main() {
	child.Main(sink.Roles, spanpath.Roles, serveload.Roles)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	os.Exit(exitStatus(err))
}

func exitStatus(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	slog.Error(err.Error())
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, suite.ErrBusy):
		return exitBusy
	}
	return exitFailed
}

// settings are the flags and the environment of a command.
type settings struct {
	options  suite.Options
	quiet    bool
	limit    float64 // of the CPU that others may use
	patience time.Duration
	out      string
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	s := settings{options: suite.Options{Env: &suite.Env{}}, limit: math.MaxFloat64}
	flags := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	flags.StringVar(&s.options.Env.Bin, "bin", "", "the folder with plugins (default: this executable's)")
	flags.BoolVar(&s.quiet, "quiet", false, "do not log each row")
	command := map[string]func(*settings, *flag.FlagSet) func(context.Context) error{
		"run": (*settings).run, "gate": (*settings).gate, "soak": (*settings).soakMemory,
	}[args[0]]
	if command == nil {
		return errUsage
	}
	do := command(&s, flags)
	err := flags.Parse(args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case flags.NArg() > 0:
		return fmt.Errorf("%w; not %q", errUsage, flags.Arg(0))
	}
	return s.with(ctx, do)
}

// choice adds a flag that chooses shapes or rows.
func choice(flags *flag.FlagSet, to **regexp.Regexp, name string) {
	*to = new(regexp.Regexp)
	flags.TextVar(*to, name, regexp.MustCompile(""), "only "+name+"s that match the `regexp`")
}

func (s *settings) run(flags *flag.FlagSet) func(context.Context) error {
	choice(flags, &s.options.Shape, "shape")
	choice(flags, &s.options.Row, "row")
	flags.BoolVar(&s.options.Quick, "quick", false, "the headline claims only")
	flags.IntVar(&s.options.Repeats, "repeat", 0, "rounds of each shape, instead of its own number")
	flags.Float64Var(&s.limit, "foreign", 0.25, "CPU that other processes may use during a run, in cores")
	flags.DurationVar(&s.patience, "patience", 90*time.Second, "how long to wait and repeat, in all, until the machine is idle")
	flags.StringVar(&s.options.Env.Collector, "collector", ".tools/peers/otelcol/otelcol", "an OpenTelemetry `Collector` for comparison")
	flags.StringVar(&s.out, "out", "bin/bench/out", "the folder for report.md")
	return func(ctx context.Context) error {
		if len(s.options.Select(shapes())) == 0 {
			return fmt.Errorf("%w; no row matches", errUsage)
		}
		results, err := suite.Run(ctx, shapes(), s.options)
		if err != nil {
			return err
		}
		results.Machine, results.Commit = measure.Machine(), cmp.Or(builtOf, "an unknown commit")
		if err := s.write("report.md", results.Markdown()); err != nil || results.Failed() {
			return cmp.Or(err, errFailed)
		}
		return nil
	}
}

// write writes a report to standard output and to a file of the folder.
func (s *settings) write(file, text string) error {
	_, err := io.WriteString(os.Stdout, text)
	return errors.Join(err, os.MkdirAll(s.out, 0o755), os.WriteFile(filepath.Join(s.out, file), []byte(text), 0o644))
}

// gateRounds bounds the rounds of a claim that exceeds its bound.
const gateRounds = 3

func (s *settings) gate(flags *flag.FlagSet) func(context.Context) error {
	choice(flags, &s.options.Shape, "shape")
	return func(ctx context.Context) error {
		claims, err := suite.Check(ctx, shapes(), s.options, gateRounds)
		if err != nil {
			return err
		}
		return printGate(os.Stdout, claims)
	}
}

// printGate prints the claims, and returns an error if a bound is exceeded.
func printGate(w io.Writer, claims []suite.ClaimResult) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var missed error
	for _, c := range claims {
		verdict := "ok"
		if !c.Held() {
			verdict, missed = "OVER", errGate
		}
		fmt.Fprintf(table, "%s\t%s\t%s\tbest %.3g%s of %d rounds\tbound %.3g%s\n", verdict, c.Shape, c.Name, c.Measured.Min, c.Unit, c.Measured.N, c.Gate, c.Unit)
	}
	return errors.Join(missed, table.Flush())
}

// shortestSoak is long enough to fill the queue and to drop spans for their age.
const shortestSoak = 90 * time.Second

func (s *settings) soakMemory(flags *flag.FlagSet) func(context.Context) error {
	length := flags.Duration("for", time.Hour, "how long; 2m suffices for a check")
	flags.StringVar(&s.out, "out", "bin/bench/soak", "the folder for soak.md")
	return func(ctx context.Context) error {
		if *length < shortestSoak {
			return fmt.Errorf("%w; a soak takes %s at least", errUsage, shortestSoak)
		}
		result, err := spanpath.Soak(ctx, s.options.Env, *length)
		if err != nil {
			return err
		}
		text, ok := result.Report()
		err = s.write("soak.md", text)
		if err == nil && !ok {
			err = errSoak
		}
		return err
	}
}

// with calls f with a sink, and with a temporary folder in TMPDIR.
func (s *settings) with(ctx context.Context, f func(context.Context) error) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := &s.options.Env.Bin
	if *bin, err = filepath.Abs(cmp.Or(*bin, filepath.Dir(self))); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return err
	}
	level := slog.LevelInfo
	if s.quiet {
		level = slog.LevelWarn
	}
	report := progress.Start(os.Stderr, "bench", 0)
	defer report.End()
	s.options.Progress = report.At
	s.options.Log = slog.New(slog.NewTextHandler(report, &slog.HandlerOptions{Level: level}))
	into, err := sink.Start(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closed := into.Close(); ctx.Err() == nil { // the end of ctx has ended the sink
			err = errors.Join(err, closed)
		}
	}()
	s.options.Env.Sink = into
	s.options.Gate = &suite.Gate{Limit: s.limit, Patience: s.patience, Others: func() (time.Duration, error) {
		// The children of a run have ended. Only this process and the sink run.
		ofSink, err1 := into.CPU()
		busy, err2 := measure.BusyCPU()
		return busy - measure.SelfCPU() - measure.EndedChildrenCPU() - ofSink, errors.Join(err1, err2)
	}}
	return f(ctx)
}

// builtOf is the commit of this program, and whether the work tree had changes. The
// linker sets it, because the go command finds no commit in a git worktree.
var builtOf string
