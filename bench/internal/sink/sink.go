// Package sink is a child process that receives the spans of all rows: OTLP over
// HTTP and gRPC, and the API of a Datadog agent. It counts spans without decoding
// them, keeps nothing, and answers at once or after a pause.
//
// It shares the machine with the measured processes, so a report has its CPU time
// as well, apart from the figures of the rows.
package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Addresses are the listeners of a sink, such as "127.0.0.1:4711".
type Addresses struct {
	// HTTP serves OTLP at /v1/traces, GRPC its service, and Datadog the API of an
	// agent's port 8126.
	HTTP    string `json:"http"`
	GRPC    string `json:"grpc"`
	Datadog string `json:"datadog"`
	// Control serves Spans, SetLatency and SetOpen.
	Control string `json:"control"`
	PID     int    `json:"pid"`
}

// Sink is a running sink, as its parent process sees it.
type Sink struct {
	Addresses
	process *child.Child
}

// roleName is the role of the sink's process.
const roleName = "sink"

// Roles has the role of the sink's process.
var Roles = map[string]child.Role{roleName: serve}

// Start starts a sink. It ends with Close, with ctx, and with this process.
func Start(ctx context.Context) (*Sink, error) {
	process, err := child.Start(ctx, nil, roleName)
	if err != nil {
		return nil, err
	}
	s := &Sink{process: process}
	if err := process.Read(&s.Addresses); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the sink and waits for its end.
func (s *Sink) Close() error { return s.process.Stop(nil) }

// CPU returns the CPU time that the sink has used so far.
func (a Addresses) CPU() (time.Duration, error) { return measure.ProcessCPU(a.PID) }

var client = &http.Client{Timeout: 10 * time.Second}

// Spans returns the number of spans that the sink has received since its start, over
// all protocols.
func (a Addresses) Spans(ctx context.Context) (uint64, error) {
	var spans uint64
	err := a.control(ctx, http.MethodGet, "/spans", &spans)
	return spans, err
}

// SetLatency sets the pause before each answer.
func (a Addresses) SetLatency(ctx context.Context, d time.Duration) error {
	return a.control(ctx, http.MethodPost, "/latency?"+url.Values{"d": {d.String()}}.Encode(), nil)
}

// SetOpen closes or opens OTLP/HTTP. While it is closed, the sink ends each
// connection that sends a request, without an answer.
func (a Addresses) SetOpen(ctx context.Context, open bool) error {
	return a.control(ctx, http.MethodPost, "/open?"+url.Values{"open": {strconv.FormatBool(open)}}.Encode(), nil)
}

func (a Addresses) control(ctx context.Context, method, path string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.Control+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("control the sink: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("control the sink: %s", resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}
