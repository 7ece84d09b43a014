// Package testplugin turns a test binary into plugins with chosen behaviours, good and
// bad. It is for tests only.
//
//  1. TestMain calls Main first. In a process that was started as a plugin it never
//     returns.
//  2. A test calls Install with a mode and gets the path of an executable for a host's
//     list. The executable is a link to the test binary, and its name contains the
//     mode, because a host passes neither arguments nor variables to a plugin.
//  3. Received returns the batches that all processes of the plugin have delivered.
//
// The modes are the table in modes.go; open it first. The modes in modes_wrong.go are
// good plugins with a single defect, which proxy.go adds. The modes in modes_noise.go
// print.
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

// prefix begins the name of a link to a test binary.
const prefix = "testplugin-"

// Main runs the plugin if this process is a plugin, and does not return then.
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

// Install returns the path of an executable plugin of a mode: "record", "slow:50ms".
// Modes cannot contain a slash.
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

// Batch is a delivered batch. Batches are in the order of delivery.
type Batch struct {
	ID      string
	Attempt int
	PID     int
	// Spans are the names of its spans, in order, and IDs their span ids.
	Spans []string
	IDs   []string
}

// Received returns the batches that the plugin at path has delivered so far.
func Received(t testing.TB, path string) []Batch {
	t.Helper()
	data, err := os.ReadFile(recordFile(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("read the record: %v", err)
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1] // the plugin may be writing the next line
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

// Spans returns how often each span was received, by name.
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
