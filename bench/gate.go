package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// gateRounds is how often a claim may be over its bound before it is missed.
const gateRounds = 3

var errGate = errors.New("a claim is over its bound in every round: a change has made it dearer, or the bound is wrong")

// gate is bench gate: for a change before it lands, on whatever machine that
// happens. It asks for no idle one and gives no figures to be quoted.
func gate(ctx context.Context, args []string) error {
	var s settings
	flags := flag.NewFlagSet("bench gate", flag.ContinueOnError)
	flags.Var(&s.suite, "suite", "only suites that match")
	flags.Var(&s.shape, "shape", "only shapes that match")
	flags.StringVar(&s.bin, "bin", "", "the folder with plugins and servers (default: this executable's)")
	flags.BoolVar(&s.quiet, "quiet", false, "do not log each case")
	if err := parse(flags, args); err != nil {
		return err
	}
	s.options.Suite, s.options.Shape, s.options.Quick = s.suite.Regexp, s.shape.Regexp, true
	s.limit = math.MaxFloat64
	return s.with(ctx, func() error {
		held, err := suite.Check(ctx, suites(), s.options, gateRounds)
		if err != nil {
			return err
		}
		return tell(os.Stdout, held, s.options)
	})
}

// tell prints what was held, and is an error where a bound was passed. A claim
// of a shape that was not chosen is not told of.
func tell(w io.Writer, held []suite.Held, o suite.Options) error {
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
