package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/servetrace/servetrace/internal/progress"
)

func main() {
	if play(filepath.Base(os.Args[0])) {
		return
	}
	opts, err := readFlags(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil:
		err = chaos(opts, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options holds the command line's flags.
type options struct {
	seed uint64
	// duration is the total duration of the phases with load.
	duration time.Duration
	// rate is in requests per second.
	rate int
	// bin is the folder with the programs from make build.
	bin string
	// verbose prints the journal as it is written.
	verbose bool
}

// minDuration is long enough to distinguish faults and recovery.
const minDuration = 10 * time.Second

func readFlags(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the random faults")
	flags.DurationVar(&o.duration, "duration", 2*time.Minute, "total duration of the load; two fifths of it have faults")
	flags.IntVar(&o.rate, "rate", 100, "requests a second")
	flags.StringVar(&o.bin, "bin", "bin", "folder with hello and the plugins from make build")
	flags.BoolVar(&o.verbose, "v", false, "print each fault when it happens")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("argument %q: want none", flags.Arg(0))
	case o.duration < minDuration:
		return o, fmt.Errorf("-duration %v: want %v or more", o.duration, minDuration)
	case o.rate < 1 || o.rate > 10_000:
		return o, fmt.Errorf("-rate %d: want 1 to 10000", o.rate)
	}
	return o, nil
}

// Shares of the duration: before, during and after the faults.
const (
	calmShare   = 0.4
	faultsShare = 0.4
	afterShare  = 0.2
)

// chaos performs a run. It returns an error if a promise is broken, or if the run
// itself fails.
func chaos(o options, out io.Writer) (err error) {
	s, err := newStage(o, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.strike(err != nil)) }()
	faults, err := perform(s)
	if err != nil {
		return err
	}
	return s.judge(faults)
}

// perform runs the phases and reports the progress.
func perform(s *stage) ([]fault, error) {
	const phases = 5
	longest := s.opts.duration + 2*(recoverTimeout+patience+quiet)
	report := progress.Start(os.Stderr, "chaos", longest)
	defer report.End()
	report.At("start", 0, phases)
	if err := s.open(); err != nil {
		return nil, err
	}
	span := func(share float64) time.Duration { return time.Duration(share * float64(s.opts.duration)) }
	report.At("calm", 1, phases)
	s.load.phase("calm", span(calmShare))
	s.before = s.rest()
	report.At("faults", 2, phases)
	faults := schedule(s.opts.seed, span(faultsShare), s.plugins)
	s.load.begin("faults")
	s.misbehave(faults, span(faultsShare))
	s.repair()
	s.load.end()
	report.At("recovery", 3, phases)
	s.recovered = s.recover()
	report.At("after the faults", 4, phases)
	s.load.phase("after", span(afterShare))
	s.monitor.settle()
	s.after = s.rest()
	s.monitor.end()
	return faults, s.service.terminate()
}
