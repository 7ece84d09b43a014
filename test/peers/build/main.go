// Command build is `make peers`: it builds the real peers that package recipe
// describes, one after another, each unless it is there already, and says of
// each where it lies. A peer that needs a program which is not installed is
// left out with a notice.
//
//	go run ./build [-go COMMAND] [-v] [NAME...]
//
// Names are those of peers; without any it builds all. Status 1 means that one
// which is not optional could not be built.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/test/peers/recipe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make peers:", err)
		os.Exit(1)
	}
}

// run builds what args ask for.
func run(ctx context.Context, args []string, output io.Writer) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	goCommand := flags.String("go", "go", "the go command")
	verbose := flags.Bool("v", false, "show what the commands print, and not only of one that fails")
	if err := flags.Parse(args); err != nil {
		return err
	}
	module, err := os.Getwd()
	if err != nil {
		return err
	}
	peers := recipe.Peers(module, os.Getenv) //nolint:forbidigo // a command reads its environment
	wanted, err := choose(flags.Args())
	if err != nil {
		return err
	}
	b := recipe.Builder{Module: module, Peers: peers, Go: *goCommand, Environ: os.Environ()} //nolint:forbidigo // the same
	report := progress.Start(os.Stderr, "make peers", 0)
	defer report.End()
	var errs []error
	for i, r := range wanted {
		report.At(r.Name, i, len(wanted))
		errs = append(errs, build(ctx, b, r, *verbose, output))
	}
	return errors.Join(errs...)
}

// choose gives the recipes of names, all of them without any.
func choose(names []string) ([]recipe.Recipe, error) {
	if len(names) == 0 {
		return recipe.All(), nil
	}
	var chosen []recipe.Recipe
	for _, name := range names {
		r, known := recipe.Find(name)
		if !known {
			var all []string
			for _, r := range recipe.All() {
				all = append(all, r.Name)
			}
			return nil, fmt.Errorf("there is no peer %q; want some of %s", name, strings.Join(all, " "))
		}
		chosen = append(chosen, r)
	}
	return chosen, nil
}

// build builds one peer and says what came of it.
func build(ctx context.Context, b recipe.Builder, r recipe.Recipe, verbose bool, output io.Writer) error {
	if missing := r.Missing(); len(missing) > 0 {
		_, err := fmt.Fprintf(output, "make peers: no %s, so %s is left out, and its tests are skipped\n", strings.Join(missing, " or "), r.Name)
		return err
	}
	var said bytes.Buffer
	b.Output = &said
	if verbose {
		b.Output = output
	}
	start := time.Now()
	dir, built, err := b.Build(ctx, r)
	if err != nil {
		_, failed := output.Write(said.Bytes())
		if r.Optional && ctx.Err() == nil {
			_, err = fmt.Fprintf(output, "make peers: %v: it is left out, and its tests are skipped\n", err)
		}
		return errors.Join(err, failed)
	}
	word := "there"
	if built {
		word = fmt.Sprintf("built in %.0f s", time.Since(start).Seconds())
	}
	_, err = fmt.Fprintf(output, "make peers: %s: %s, %s\n", r.Name, word, dir)
	return err
}
