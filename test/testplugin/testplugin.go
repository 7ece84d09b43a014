// Package testplugin turns a test binary into plugins that behave in chosen
// ways, good and bad. It is for tests only.
//
//  1. TestMain calls Main first: in a process that was started as a plugin it
//     never returns.
//  2. A test calls Install with a mode and gets the path of an executable to
//     put on a host's list: a link to the test binary, whose name is the mode,
//     for a host gives a plugin neither arguments nor variables of its own.
//  3. Received reads what the plugin, in all its lives, has delivered.
//
// The modes are the table in modes.go, to be opened first. Those of
// modes_wrong.go are good plugins with exactly one fault, which proxy.go puts
// in; those of modes_noise.go print.
package testplugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// prefix marks a link to a test binary.
const prefix = "testplugin-"

// Main runs the plugin if this process is one, and then does not return.
func Main() {
	mode, ok := strings.CutPrefix(filepath.Base(os.Args[0]), prefix)
	if !ok {
		return
	}
	Hurry()
	name, arg, _ := strings.Cut(mode, ":")
	run, ok := modes[name]
	for _, more := range []map[string]func(string){wrongModes, noiseModes} {
		if !ok {
			run, ok = more[name]
		}
	}
	if !ok {
		fmt.Fprintf(os.Stderr, "testplugin: no mode %q\n", name)
		os.Exit(2)
	}
	run(arg)
	os.Exit(0)
}

// Install gives the path of an executable plugin of a mode: "record",
// "slow:50ms". Modes with a slash are not to be had.
func Install(t testing.TB, mode string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	path := filepath.Join(t.TempDir(), prefix+mode)
	if err := os.Symlink(exe, path); err != nil {
		t.Fatalf("link the test binary: %v", err)
	}
	return path
}

// Batch is one delivery, in the order of delivery.
type Batch struct {
	ID      string
	Attempt int
	PID     int
	// Spans are the names of its spans, in order, IDs their span ids.
	Spans []string
	IDs   []string
}

// Received reads what the plugin at path has delivered so far.
func Received(t testing.TB, path string) []Batch {
	t.Helper()
	data, err := os.ReadFile(recordFile(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("read the record: %v", err)
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1] // the plugin may be writing the next
	var batches []Batch
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var b Batch
		if err := json.Unmarshal(lines.Bytes(), &b); err != nil {
			t.Fatalf("read the record: line %q: %v", lines.Text(), err)
		}
		batches = append(batches, b)
	}
	return batches
}

// Spans are the names of all spans received, and how often each was.
func Spans(t testing.TB, path string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for _, b := range Received(t, path) {
		for _, name := range b.Spans {
			seen[name]++
		}
	}
	return seen
}

func recordFile(path string) string { return path + ".spans" }
