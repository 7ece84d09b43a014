package admin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/servetrace/servetrace/host"
)

// Limits of a capture in seconds and in bytes: the default, and the largest allowed value.
const (
	captureSeconds    = 10
	MaxCaptureSeconds = 3600
	captureBytes      = 8 << 20
	MaxCaptureBytes   = 1 << 30
)

// HeaderMissed is the trailer of an answer at /-/capture. Its value is the number of spans that
// the plugin got during the capture, but that are not in the answer.
const HeaderMissed = "Servetrace-Missed-Spans"

// ServeCapture enables captures at /-/capture. The function capture opens a capture of a
// plugin, as [host.OpenCapture] does. Each client of the listener can then read spans, so
// ServeCapture must be called only if Config.Capture is set.
func (s *Server) ServeCapture(capture func(plugin string) (*host.Capture, error)) {
	s.additions.capture.Store(&capture)
}

// serveCapture answers with the batches that the plugin in the query gets from now on. Each
// batch is an ExportTraceServiceRequest after its length in 4 bytes, the format of the
// Collector's file exporter. The answer ends after the time in the query, or before a batch
// with which it would be longer than the limit in the query.
func serveCapture(w http.ResponseWriter, r *http.Request, a *additions) {
	seconds, err := numberOf(r, "seconds", captureSeconds, MaxCaptureSeconds)
	limit, limitErr := numberOf(r, "bytes", captureBytes, MaxCaptureBytes)
	open := a.capture.Load()
	site := r.Header.Get("Sec-Fetch-Site") // only browsers send it
	switch {
	case open == nil:
		http.Error(w, "captures are off: set "+EnvCapture+"=true and start the service again", http.StatusForbidden)
		return
	case site != "" && site != "none" && site != "same-origin":
		http.Error(w, "a page of another site cannot start a capture", http.StatusForbidden)
		return
	case err != nil || limitErr != nil:
		http.Error(w, errors.Join(err, limitErr).Error(), http.StatusBadRequest)
		return
	case r.Method == http.MethodHead:
		return
	}
	capture, err := (*open)(r.FormValue("plugin"))
	switch {
	case errors.Is(err, host.ErrManyCaptures):
		http.Error(w, err.Error()+"; try again when one has ended", http.StatusConflict)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Trailer", HeaderMissed)
	missed := passBatches(ctx, capture, int64(limit), w) + capture.Close()
	w.Header().Set(HeaderMissed, strconv.FormatUint(missed, 10))
}

// passBatches writes batches until ctx ends, the limit is reached or the client
// disconnects. It returns the number of spans that it has not written.
func passBatches(ctx context.Context, capture *host.Capture, limit int64, w http.ResponseWriter) (missed uint64) {
	control := http.NewResponseController(w)
	// The error is ignored, because it only means that the server has no deadlines.
	extend := func() { _ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) }
	extend()
	err := control.Flush() // the client learns that the capture has begun
	for written := int64(0); err == nil && missed == 0; {
		batches := capture.Next(ctx)
		if len(batches) == 0 {
			break
		}
		extend()
		for _, b := range batches {
			if written += int64(len(b.Data)); written > limit || err != nil {
				missed += uint64(b.Spans)
				continue
			}
			_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b.Data))), b.Data...))
		}
		err = errors.Join(err, control.Flush())
	}
	extend()
	return missed
}

// numberOf returns the number with this name in the query, which must be from 1 to most. If
// the query does not have it, numberOf returns the argument otherwise.
func numberOf(r *http.Request, name string, otherwise, most float64) (float64, error) {
	text := r.FormValue(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 1 && n <= most) { // also true for NaN
		return 0, fmt.Errorf("%s=%.20q: want a number from 1 to %.0f", name, text, most)
	}
	return n, nil
}
