package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/soak"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

var (
	errMissed = errors.New("a claim is missed")
	errFailed = errors.New("a case has failed, see the report")
	errGate   = errors.New("a claim is over its bound in every round: a change has made it dearer, or the bound is wrong")
	errSoak   = errors.New("the soak has failed, see its findings")
)

// gateRounds bounds the rounds of a claim that exceeds its bound.
const gateRounds = 3

// shortestSoak is long enough to fill the queue and to drop spans for their age.
const shortestSoak = 90 * time.Second

// settings are the flags that commands share.
type settings struct {
	options  suite.Options
	bin      string
	quiet    bool
	limit    float64 // of the CPU that others may use
	patience time.Duration
}

func (s *settings) flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&s.bin, "bin", "", "the folder with plugins (default: this executable's)")
	flags.BoolVar(&s.quiet, "quiet", false, "do not log each case")
	return flags
}

var all = regexp.MustCompile("")

// choice adds the flags that choose cases.
func (s *settings) choice(flags *flag.FlagSet) {
	o := &s.options
	o.Suite, o.Shape = new(regexp.Regexp), new(regexp.Regexp)
	flags.TextVar(o.Suite, "suite", all, "only suites that match the `regexp`")
	flags.TextVar(o.Shape, "shape", all, "only shapes that match the `regexp`")
}

func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case flags.NArg() > 0:
		return fmt.Errorf("%w; not %q", errUsage, flags.Arg(0))
	}
	return nil
}

// run is the command bench run.
func run(ctx context.Context, args []string) error {
	var s settings
	flags := s.flags("bench run")
	s.choice(flags)
	s.options.Row = new(regexp.Regexp)
	flags.TextVar(s.options.Row, "row", all, "only rows that match the `regexp`; a claim needs all rows that it compares")
	flags.BoolVar(&s.options.Quick, "quick", false, "the headline claims only")
	flags.IntVar(&s.options.Repeats, "repeat", 0, "repeats of each case, instead of its own number")
	flags.Float64Var(&s.limit, "foreign", 0.25, "CPU that other processes may use during a case, in cores")
	flags.DurationVar(&s.patience, "patience", 90*time.Second, "how long to wait and repeat, in all, until the machine is idle")
	out := flags.String("out", "bin/bench/out", "the folder for results.json and report.md")
	profiles := flags.String("profile", "", "a folder for CPU, heap, block and mutex profiles of the measured processes, which then cost more")
	check := flags.Bool("check", false, "exit with status 4 if a claim is missed")
	if err := parse(flags, args); err != nil {
		return err
	}
	set := suites()
	if len(s.options.Select(set.Cases)) == 0 {
		return fmt.Errorf("%w; no case matches, see bench list", errUsage)
	}
	if *profiles != "" {
		if err := os.MkdirAll(*profiles, 0o755); err != nil {
			return err
		}
	}
	return s.with(ctx, func() error {
		s.options.Env.Profiles = *profiles
		results, err := suite.Run(ctx, set, s.options)
		if err != nil {
			return err
		}
		results.Machine, results.Commit, results.Versions = measure.ThisMachine(), builtOf, versions()
		if err := results.Write(*out); err != nil {
			return err
		}
		if _, err := io.WriteString(os.Stdout, results.Markdown()); err != nil || results.Failed() {
			return cmp.Or(err, errFailed)
		}
		if *check && slices.ContainsFunc(results.Claims, func(c suite.ClaimResult) bool { return c.Verdict() == suite.Missed }) {
			return errMissed
		}
		return nil
	})
}

// gate is the command bench gate.
func gate(ctx context.Context, args []string) error {
	s := settings{limit: math.MaxFloat64}
	flags := s.flags("bench gate")
	s.choice(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	s.options.Quick = true
	return s.with(ctx, func() error {
		held, err := suite.Check(ctx, suites(), s.options, gateRounds)
		if err != nil {
			return err
		}
		return printGate(os.Stdout, held, s.options)
	})
}

// printGate prints the claims of the selected shapes, and returns an error if a
// bound is exceeded.
func printGate(w io.Writer, held []suite.Held, o suite.Options) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var missed error
	for _, h := range held {
		if len(o.Select([]suite.Case{{Suite: h.Claim.Suite, Shape: h.Claim.Shape, Quick: true}})) == 0 {
			continue
		}
		verdict, best := "ok", "no figure"
		if !h.OK() {
			verdict, missed = "OVER", errGate
		}
		if h.Rounds > 0 {
			best = strconv.FormatFloat(h.Best, 'g', 3, 64) + h.Claim.Unit
		}
		fmt.Fprintf(table, "%s\t%s\t%s\tbest %s of %d rounds\tbound %.3g%s\n", verdict, h.Claim.Shape, h.Claim.Name, best, h.Rounds, h.Claim.Bound(), h.Claim.Unit)
	}
	return errors.Join(missed, table.Flush())
}

// runSoak is the command bench soak.
func runSoak(ctx context.Context, args []string) error {
	var s settings
	flags := s.flags("bench soak")
	length := flags.Duration("for", time.Hour, "how long; 2m suffices for a check")
	rate := flags.Int("rate", 5000, "spans in a second")
	out := flags.String("out", "bin/bench/soak", "the folder for soak.json and soak.md")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *length < shortestSoak || *rate < 1 {
		return fmt.Errorf("%w; a soak takes %s at least, and has a rate", errUsage, shortestSoak)
	}
	return s.with(ctx, func() error {
		result, err := soak.Soak{Length: *length, Rate: *rate, Bin: s.bin, Sink: s.options.Env.Sink, Log: s.options.Log}.Run(ctx)
		if err != nil {
			return err
		}
		data, err := json.MarshalIndent(result, "", "  ")
		if err := errors.Join(err, os.MkdirAll(*out, 0o755)); err != nil {
			return err
		}
		var text strings.Builder
		err = errors.Join(result.Write(io.MultiWriter(&text, os.Stdout)),
			os.WriteFile(filepath.Join(*out, "soak.json"), append(data, '\n'), 0o644),
			os.WriteFile(filepath.Join(*out, "soak.md"), []byte(text.String()), 0o644))
		if err == nil && !result.OK() {
			err = errSoak
		}
		return err
	})
}

// with calls f with a sink, and with a temporary folder in TMPDIR.
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
	s.options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	into, err := sink.Start(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closed := into.Close(); ctx.Err() == nil { // the end of ctx has ended the sink
			err = errors.Join(err, closed)
		}
	}()
	s.options.Env = &suite.Env{Bin: s.bin, Sink: into}
	s.options.Gate = newGate(*s, into)
	return f()
}

// newGate returns a gate. When it reads the clocks, the children of a case have
// ended, and only this process and the sink run.
func newGate(s settings, into *sink.Sink) *suite.Gate {
	return &suite.Gate{
		Limit: s.limit, Patience: s.patience, Look: time.Second / 2,
		Others: func() (time.Duration, error) {
			ofSink, err1 := into.CPU()
			busy, err2 := measure.BusyCPU()
			return busy - measure.SelfCPU() - measure.EndedChildrenCPU() - ofSink, errors.Join(err1, err2)
		},
		Busiest: func() []measure.Process { return measure.Busiest(5, time.Second, os.Getpid(), into.PID) },
	}
}

// builtOf is the commit of this program, and whether the work tree had changes. The
// linker sets it, because the go command finds no commit in a git worktree.
var builtOf string

// peers are the modules whose versions belong to a report.
var peers = []string{
	"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp", "google.golang.org/grpc",
	"github.com/DataDog/dd-trace-go/v2", "github.com/hashicorp/go-plugin", "google.golang.org/protobuf",
}

func versions() map[string]string {
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(peers, d.Path) {
				found[d.Path] = d.Version
			}
		}
	}
	return found
}
