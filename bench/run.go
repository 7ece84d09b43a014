package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/report"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

var (
	errMissed = errors.New("a claim is missed")
	errFailed = errors.New("a case has failed, the report says which and why")
)

// expr is a flag that is a regular expression.
type expr struct{ *regexp.Regexp }

func (e *expr) String() string {
	if e.Regexp == nil {
		return ""
	}
	return e.Regexp.String()
}

func (e *expr) Set(text string) (err error) {
	e.Regexp, err = regexp.Compile(text)
	return err
}

// settings are the flags of bench run.
type settings struct {
	options           suite.Options
	suite, shape, row expr
	out, bin          string
	profiles          string
	limit             float64
	patience          time.Duration
	check, quiet      bool
}

func (s *settings) parse(args []string) error {
	flags := flag.NewFlagSet("bench run", flag.ContinueOnError)
	flags.BoolVar(&s.options.Quick, "quick", false, "the headline claims only")
	flags.Var(&s.suite, "suite", "only suites that match")
	flags.Var(&s.shape, "shape", "only shapes that match")
	flags.Var(&s.row, "row", "only rows that match; a claim needs all that it compares")
	flags.IntVar(&s.options.Repeats, "repeat", 0, "repeats of each case, instead of its own number")
	flags.StringVar(&s.out, "out", "bin/bench/out", "the folder for results.json and report.md")
	flags.StringVar(&s.bin, "bin", "", "the folder with plugins and servers (default: this executable's)")
	flags.StringVar(&s.profiles, "profile", "", "a folder for CPU, heap, block and mutex profiles of what is measured, which then costs more")
	flags.Float64Var(&s.limit, "foreign", 0.25, "how much of the machine others may use during a case, in cores")
	flags.DurationVar(&s.patience, "patience", 90*time.Second, "how long to wait and repeat, in all, until the machine is idle")
	flags.BoolVar(&s.check, "check", false, "exit with status 4 if a claim is missed")
	flags.BoolVar(&s.quiet, "quiet", false, "do not log each case")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w; not %q", errUsage, flags.Arg(0))
	}
	s.options.Suite, s.options.Shape, s.options.Row = s.suite.Regexp, s.shape.Regexp, s.row.Regexp
	return nil
}

// parse reads flags; what is wrong with them the flag set has told already.
func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

// run is bench run.
func run(ctx context.Context, args []string) error {
	var s settings
	if err := s.parse(args); err != nil {
		return err
	}
	set := suites()
	if len(s.options.Select(set.Cases)) == 0 {
		return fmt.Errorf("%w; no case matches, see bench list", errUsage)
	}
	return s.with(ctx, func() error {
		results, err := suite.Run(ctx, set, s.options)
		if err != nil {
			return err
		}
		results.Machine, results.Commit, results.Versions = measure.ThisMachine(), builtOf, versions()
		return s.conclude(results)
	})
}

// with calls f while the sink runs and there is a folder for cases, and ends
// both.
func (s *settings) with(ctx context.Context, f func() error) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if s.bin == "" {
		s.bin = filepath.Dir(self)
	}
	if s.bin, err = filepath.Abs(s.bin); err != nil {
		return err
	}
	if s.profiles != "" {
		if s.profiles, err = filepath.Abs(s.profiles); err != nil {
			return err
		}
		if err := os.MkdirAll(s.profiles, 0o755); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	level := slog.LevelInfo
	if s.quiet {
		level = slog.LevelWarn
	}
	s.options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	into, err := sink.Start(ctx, self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreEnded(ctx, into.Close())) }()
	s.options.Env = &suite.Env{Self: self, Bin: s.bin, Dir: dir, Sink: into, Profiles: s.profiles, Log: s.options.Log}
	s.options.Gate = newGate(*s, into)
	return f()
}

// ignoreEnded forgets the error of a process that the end of ctx has ended.
func ignoreEnded(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// newGate counts as ours: this process, its children that have ended, and the
// sink. A case's processes have ended when it is looked at.
func newGate(s settings, into *sink.Sink) *measure.Gate {
	return &measure.Gate{
		Limit: s.limit, Patience: s.patience,
		Ours: func() (time.Duration, error) {
			ofSink, err := into.CPU()
			return measure.SelfCPU() + measure.EndedChildrenCPU() + ofSink, err
		},
		Busiest: func() []measure.Process {
			ours := []int{os.Getpid(), into.PID}
			return measure.Busiest(5, time.Second, func(pid int) bool { return slices.Contains(ours, pid) })
		},
	}
}

// conclude writes the report and says what came out.
func (s settings) conclude(results *suite.Results) error {
	if err := report.Write(s.out, results); err != nil {
		return err
	}
	report.Markdown(os.Stdout, results)
	if results.Failed() {
		return errFailed
	}
	if s.check && slices.ContainsFunc(results.Claims, func(c suite.ClaimResult) bool { return c.Verdict() == suite.Missed }) {
		return errMissed
	}
	return nil
}

// list is bench list.
func list(w io.Writer) error {
	for _, c := range suites().Cases {
		quick := ""
		if c.Quick {
			quick = "\t(quick)"
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s%s\n", c.Suite, c.Shape, c.Row, quick); err != nil {
			return err
		}
	}
	return nil
}

// builtOf is the commit of which this program was built, and whether the work tree
// had changes. The linker sets it, because the go command finds no commit in a git
// worktree. It is empty in a program that make did not build.
var builtOf string

// peers are the modules whose versions matter to a reader.
var peers = []string{
	"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp", "google.golang.org/grpc",
	"github.com/DataDog/dd-trace-go/v2", "github.com/hashicorp/go-plugin", "google.golang.org/protobuf",
}

func versions() map[string]string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	found := map[string]string{}
	for _, d := range info.Deps {
		if slices.Contains(peers, d.Path) {
			found[d.Path] = strings.TrimSpace(d.Version)
		}
	}
	return found
}
