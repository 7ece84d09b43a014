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

// The names under which this program has another role.
const (
	roleRecorder = "recorder" // a plugin that records its batches and fails on request
	roleAttached = "attached" // the same without failures, run by chaos, attached to by hello
	roleHog      = "hog"      // uses a CPU
)

// play runs the role of that name until it ends, and reports whether there is such a
// role.
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

// Prefixes of request ids that trigger actions of the recorder. A mark is only recorded.
const (
	markPrefix   = "chaos-mark-"
	floodPrefix  = "chaos-flood-"
	poisonPrefix = "chaos-poison-"
)

// crashFile returns the path of a file that makes the recorder at path crash while it
// exists.
func crashFile(path string) string { return path + ".crash" }

// Contents of a crashFile.
const (
	crashAtStart = "start"
	crashAtBatch = "batch"
)

// batchLine is the recorder's line for a batch.
type batchLine struct {
	Batch   string   `json:"batch"`
	Attempt int      `json:"attempt"`
	IDs     []string `json:"ids"`
	Marks   []string `json:"marks,omitempty"`
}

// batchFile returns the path of the recorder's output.
func batchFile(path string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(path)), outFolder, filepath.Base(path)+".batches")
}

// recorder returns a plugin that answers when the batch is on disk. weak is called with
// the request id of each span.
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

// appendLine writes a newline and a line, so that a line cut by a kill does not corrupt
// the next.
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

// weaknesses performs the recorder's failures on request.
func weaknesses(requestID string) {
	switch {
	case strings.HasPrefix(requestID, floodPrefix):
		flood()
	case strings.HasPrefix(requestID, poisonPrefix):
		crash("poison")
	case requestID == "":
		if state, err := os.ReadFile(crashFile(os.Args[0])); err == nil && string(state) == crashAtBatch {
			crash("requested")
		}
	}
}

// crash ends the process in a way that no library can recover.
func crash(why string) {
	go func() { panic("chaos: " + why) }() //nolint:forbidigo // the fault
	select {}
}

// flood prints 8 MiB without a newline to descriptor 1, bypassing the SDK, and as much
// in lines to descriptor 2.
func flood() {
	const size = 8 << 20
	stdout := os.NewFile(1, "stdout")
	// Errors are ignored, because a plugin must survive the loss of its output.
	_, _ = stdout.Write(bytes.Repeat([]byte{0xfe, 'x'}, size/2))
	_, _ = os.Stderr.Write(bytes.Repeat([]byte("a line that says nothing\n"), size/25))
}
