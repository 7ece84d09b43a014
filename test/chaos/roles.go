package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
)

// The names under which this program is something else.
const (
	roleRecorder = "recorder" // a plugin that writes down what it gets, and has weaknesses
	roleAttached = "attached" // the same without them, run by chaos for hello to attach to
	roleHog      = "hog"      // takes a CPU
)

// play plays the role of that name until its end, and tells whether there is
// one.
func play(name string) bool {
	switch name {
	case roleRecorder:
		if state, err := os.ReadFile(crashFile(os.Args[0])); err == nil && string(state) == crashAtStart {
			os.Exit(1)
		}
		pluginsdk.Main(recorder(name, weaknesses))
	case roleAttached:
		pluginsdk.Main(recorder(name, func(string) {}))
	case roleHog:
		for {
			continue
		}
	default:
		return false
	}
	return true
}

// Requests carry these in front of a number as their id, for the recorder to
// know what to do. A mark is only written down.
const (
	markPrefix   = "chaos-mark-"
	floodPrefix  = "chaos-flood-"
	poisonPrefix = "chaos-poison-"
)

// crashFile makes the recorder at path crash while it is there.
func crashFile(path string) string { return path + ".crash" }

// What a crashFile may hold.
const (
	crashAtStart = "start"
	crashAtBatch = "batch"
)

// batchLine is what the recorder writes for each batch that it takes.
type batchLine struct {
	Batch   string   `json:"batch"`
	Attempt int      `json:"attempt"`
	IDs     []string `json:"ids"`
	Marks   []string `json:"marks,omitempty"`
}

// batchFile is where the recorder at path writes.
func batchFile(path string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(path)), outFolder, filepath.Base(path)+".batches")
}

// recorder is a plugin whose answer means that the batch is on disk. weak is
// called with the id of each request that has a span in it.
func recorder(name string, weak func(requestID string)) pluginsdk.Spec {
	file := batchFile(os.Args[0])
	return pluginsdk.Spec{
		Name: name,
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
				line := batchLine{Batch: b.ID(), Attempt: b.Attempt()}
				for span := range b.Spans() {
					line.IDs = append(line.IDs, span.SpanID().String())
					request := requestOf(span.Attribute(semconv.ServeRequestID))
					if strings.HasPrefix(request, markPrefix) {
						line.Marks = append(line.Marks, request)
					}
					weak(request)
				}
				weak("")
				return appendLine(file, line)
			}), nil
		},
	}
}

func requestOf(value attribute.Value, ok bool) string {
	if !ok {
		return ""
	}
	return value.AsString()
}

// appendLine writes a line with its newline in front: what a kill tears in the
// middle does not spoil the next.
func appendLine(file string, line batchLine) error {
	data, err := json.Marshal(line)
	if err != nil {
		return pluginsdk.Permanent(err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte{'\n'}, data...))
	return errors.Join(err, f.Close())
}

// weaknesses are what the recorder does on a word.
func weaknesses(requestID string) {
	switch {
	case strings.HasPrefix(requestID, floodPrefix):
		flood()
	case strings.HasPrefix(requestID, poisonPrefix):
		crash("poison")
	case requestID == "":
		if state, err := os.ReadFile(crashFile(os.Args[0])); err == nil && string(state) == crashAtBatch {
			crash("told to")
		}
	}
}

// crash ends the process in a way that no library recovers.
func crash(why string) {
	go func() { panic("chaos: " + why) }() //nolint:forbidigo // the fault
	select {}
}

// flood prints 8 MiB without a newline on descriptor 1, where the SDK does not
// stand in the way, and as much in lines on descriptor 2.
func flood() {
	const size = 8 << 20
	stdout := os.NewFile(1, "stdout")
	// A plugin has to bear that its output is taken away, so errors are nothing.
	_, _ = stdout.Write(bytes.Repeat([]byte{0xfe, 'x'}, size/2))
	_, _ = os.Stderr.Write(bytes.Repeat([]byte("a line that says nothing\n"), size/25))
}
