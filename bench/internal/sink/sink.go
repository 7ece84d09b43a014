// Package sink is a child process that receives the spans of all rows: OTLP over
// HTTP and gRPC, and the API of a Datadog agent. It counts spans without decoding
// them, keeps nothing, and answers at once or after a pause.
package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
)

// SlowPath is the prefix of paths whose answers take Latency.
const (
	SlowPath = "/slow"
	Latency  = 25 * time.Millisecond
)

// Addresses are the listeners of a sink, such as "127.0.0.1:4711".
type Addresses struct {
	// HTTP serves OTLP at /v1/traces, and the API of a Datadog agent. GRPC serves OTLP.
	HTTP, GRPC string
	PID        int
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

// Spans returns the number of spans that the sink has received since its start, over
// all protocols.
func (a Addresses) Spans(ctx context.Context) (spans uint64, err error) {
	return spans, a.control(ctx, "spans", &spans)
}

// Open opens OTLP/HTTP.
func (a Addresses) Open(ctx context.Context) error { return a.control(ctx, "open", new(bool)) }

// Shut closes OTLP/HTTP. Until Open the sink ends each connection that sends spans,
// without an answer.
func (a Addresses) Shut(ctx context.Context) error { return a.control(ctx, "shut", new(bool)) }

func (a Addresses) control(ctx context.Context, what string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.HTTP+"/control/"+what, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("control the sink: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(answer)
}
