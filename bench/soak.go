package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/soak"
)

// errNotFlat ends a soak that found something.
var errNotFlat = errors.New("the soak has failed, see what it found")

// shortestSoak has time for the queue to fill and for spans to become too old.
const shortestSoak = 90 * time.Second

// runSoak is bench soak.
func runSoak(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench soak", flag.ContinueOnError)
	length := flags.Duration("for", time.Hour, "how long; for a check 2m will do")
	rate := flags.Int("rate", 5000, "spans a second")
	out := flags.String("out", "bin/bench/soak", "the folder for soak.json and soak.md")
	bin := flags.String("bin", "", "the folder with plugins (default: this executable's)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *length < shortestSoak || *rate < 1 {
		return fmt.Errorf("%w; soak takes %s at least, and a rate", errUsage, shortestSoak)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if *bin == "" {
		*bin = filepath.Dir(self)
	}
	into, err := sink.Start(ctx, self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreEnded(ctx, into.Close())) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	result, err := soak.Soak{Length: *length, Rate: *rate, Bin: *bin, Sink: into, Log: log}.Run(ctx)
	if err != nil {
		return err
	}
	return concludeSoak(*out, result)
}

// concludeSoak writes what was found, to the folder and to standard output.
func concludeSoak(out string, result *soak.Result) error {
	data, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := errors.Join(result.Write(&text), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(out, "soak.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(out, "soak.md"), []byte(text.String()), 0o644))
	if err != nil {
		return err
	}
	if _, err := fmt.Print(text.String()); err != nil { //nolint:forbidigo // it is the result
		return err
	}
	if !result.OK() {
		return errNotFlat
	}
	return nil
}
