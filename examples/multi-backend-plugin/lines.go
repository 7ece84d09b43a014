package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/servetrace/servetrace/pluginsdk"
)

// envFile names the file that spans are appended to. Its folder may appear later, for
// example when a disk is mounted.
const envFile = "SPAN_LINES_FILE"

// newLines returns the second exporter. It appends a line of JSON for each span to a
// file.
func newLines(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	path := s.Getenv(envFile)
	if path == "" {
		return nil, &pluginsdk.ConfigError{Path: envFile, Err: errors.New("is empty: set it to the path of a file")}
	}
	return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
		var lines bytes.Buffer
		encoder := json.NewEncoder(&lines)
		for span := range b.Spans() {
			line := map[string]any{"trace_id": span.TraceID(), "span_id": span.SpanID(), "name": span.Name()}
			if err := encoder.Encode(line); err != nil {
				return pluginsdk.Permanent(err) // a further attempt would fail, too
			}
		}
		// The file is opened for each batch, so that it can be moved away at any time.
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err // the host sends the batch again
		}
		_, err = file.Write(lines.Bytes())
		return errors.Join(err, file.Close())
	}), nil
}
