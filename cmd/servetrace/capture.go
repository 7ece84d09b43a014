package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/internal/otlpjson"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/progress"
	size "github.com/servetrace/servetrace/internal/settings"
)

const captureLong = `Record the batches that a plugin of a running service gets, for "servetrace plugin
run --spans FILE". Delivery goes on as before.

The service needs SERVE_ADMIN_PORT and SERVE_ADMIN_CAPTURE=true: whoever can reach the
admin listener can then read spans. Without --addr, the address is that of "servetrace
status".

The recording ends after --for, before the batch that exceeds --bytes, with the
service, or with Ctrl-C. FILE gets mode 0600. The exit code is 1 if no span was
recorded.`

const captureExample = `  servetrace capture --plugin redact --for 1m --bytes 64MiB --file spans.json`

type captureFlags struct {
	addr, plugin, bytes, file, format string
	duration                          time.Duration
}

func newCapture(s settings) *cobra.Command {
	var f captureFlags
	cmd := &cobra.Command{
		Use:     "capture",
		Short:   "Record the spans that a plugin of a running service gets",
		Long:    captureLong,
		Example: captureExample,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.addr, "addr", "", "`address` of the admin listener: host:port, :port, or a URL")
	flags.StringVar(&f.plugin, "plugin", "", "`name` of the plugin, if there are several")
	flags.DurationVar(&f.duration, "for", 10*time.Second, "`duration`, at most 1h")
	flags.StringVar(&f.bytes, "bytes", "8MiB", "`size` in protobuf, at most 1GiB")
	flags.StringVar(&f.file, "file", "", "`FILE` to write (default: standard output)")
	flags.StringVar(&f.format, "format", formatJSON, "form of the spans: `json|proto`")
	return cmd
}

func (f captureFlags) run(cmd *cobra.Command, s settings) error {
	limit, err := size.ParseSize(f.bytes)
	switch {
	case err != nil || limit <= 0 || limit > admin.MaxCaptureBytes:
		return usagef("--bytes %q: want a size above zero and of at most 1GiB, such as 8MiB", f.bytes)
	case f.duration < time.Second || f.duration > admin.MaxCaptureSeconds*time.Second:
		return usagef("--for %v: want a duration from 1s to 1h, such as 10s", f.duration)
	}
	at, err := adminURL(s, f.addr, cmd.Flags().Changed("addr"))
	if err != nil {
		return err
	}
	recording, err := openRecording(cmd.Context(), at, f.plugin, f.duration, limit)
	if err != nil {
		return err
	}
	defer recording.close()
	out := cmd.OutOrStdout()
	if f.file != "" {
		file, err := os.OpenFile(f.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return usagef("--file: %w", err)
		}
		defer func() { _ = file.Close() }() // the writes have reported all errors
		out = file
	}
	report := progress.Start(cmd.ErrOrStderr(), "capture", f.duration)
	got, err := recording.copyUntil(cmd.Context(), out, f.format, func(spans int) { report.At(counted(spans, "span"), 0, 0) })
	report.End()
	if err != nil {
		return err
	}
	rest, interrupted := recording.rest(), context.Cause(cmd.Context())
	switch {
	case interrupted != nil:
		got.end = interrupted
	case errors.Is(got.end, errServiceEnded):
		rest = "; the service has ended before the recording"
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s in %s%s\n", counted(got.spans, "span"), countedAs(got.batches, "batch", "batches"), rest)
	switch {
	case got.spans > 0 && (interrupted != nil || errors.Is(got.end, errServiceEnded)):
		return err // nil, because the output has the spans before the end
	case got.spans == 0 && got.end == nil:
		got.end = fmt.Errorf("the plugin got no span in %v", f.duration)
	}
	return errors.Join(got.end, err)
}

// recording is the answer of a service to a request for a capture.
type recording struct {
	answer *http.Response
	body   *bufio.Reader
}

// openRecording starts a recording. at is the address of the service's status in JSON. The
// caller must call close.
func openRecording(ctx context.Context, at, plugin string, duration time.Duration, limit int64) (*recording, error) {
	query := url.Values{
		"plugin": {plugin}, "seconds": {strconv.FormatFloat(duration.Seconds(), 'f', -1, 64)}, "bytes": {strconv.FormatInt(limit, 10)},
	}
	resp, err := ask(ctx, strings.TrimSuffix(at, "/-/tracing.json")+"/-/capture?"+query.Encode()) //nolint:bodyclose // recording.close closes it
	if err != nil {
		return nil, err
	}
	return &recording{resp, bufio.NewReader(resp.Body)}, nil
}

func (r *recording) close() { _ = r.answer.Body.Close() } // read only

// errServiceEnded is the error of a recording that ends early because the connection
// broke.
var errServiceEnded = errors.New("the service has ended, or the connection to it")

// next returns the next batch, or io.EOF at the end of the recording.
func (r *recording) next() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.body, head[:]); errors.Is(err, io.EOF) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errServiceEnded, err)
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > mostBatch {
		return nil, fmt.Errorf("the answer has a batch of %d bytes: is that a capture?", length)
	}
	batch := make([]byte, length)
	if _, err := io.ReadFull(r.body, batch); err != nil {
		return nil, fmt.Errorf("%w: %w", errServiceEnded, err)
	}
	return batch, nil
}

// mostBatch bounds the bytes of a batch in a recording. No host has larger batches.
const mostBatch = 64 << 20

// captured counts the batches that were written, and their spans.
type captured struct {
	batches, spans int
	end            error // the error that ended the recording too early, or nil
}

// writeGrace bounds the wait, after a signal, for the end of a write in progress.
const writeGrace = time.Second

// copyUntil writes the batches to w until the recording or ctx ends. A write to a pipe
// blocks if its reader does not read, and cannot be canceled. Then copyUntil returns an
// error, and a goroutine remains until the process exits, which is soon.
func (r *recording) copyUntil(ctx context.Context, w io.Writer, format string, report func(spans int)) (captured, error) {
	done := make(chan captured, 1)
	go func() { done <- r.copyTo(w, format, report) }()
	select {
	case got := <-done:
		return got, nil
	case <-ctx.Done():
	}
	select {
	case got := <-done:
		return got, nil
	case <-time.After(writeGrace):
		return captured{}, fmt.Errorf("%w: the output takes no more, so its last batch is not complete", context.Cause(ctx))
	}
}

// copyTo writes the batches to w until the end of the recording.
func (r *recording) copyTo(w io.Writer, format string, report func(spans int)) (got captured) {
	for {
		batch, err := r.next()
		if err == nil {
			err = got.write(w, batch, format)
		}
		if err != nil {
			if errors.Is(err, errServiceEnded) || !errors.Is(err, io.EOF) {
				got.end = err
			}
			return got
		}
		report(got.spans)
	}
}

// write writes a batch to w, in the format of --format, and counts it.
func (c *captured) write(w io.Writer, batch []byte, format string) error {
	spans, err := otlpwire.CountSpans(batch)
	line := append(binary.BigEndian.AppendUint32(nil, uint32(len(batch))), batch...)
	if err == nil && format == formatJSON {
		line, err = otlpjson.FromProto(batch)
		line = append(line, '\n')
	}
	if err != nil {
		return fmt.Errorf("a batch of the service: %w", err)
	}
	if _, err := w.Write(line); err != nil {
		return err
	}
	c.batches++
	c.spans += spans
	return nil
}

// rest returns a remark on the spans that the recording missed, or "". It must be called
// after the end of the recording, because the service counts these spans last.
func (r *recording) rest() string {
	if missed := r.answer.Trailer.Get(admin.HeaderMissed); missed != "" && missed != "0" {
		return fmt.Sprintf("; %s more were not recorded: set a larger --bytes, or the recording was slower than the service", missed)
	}
	return ""
}
