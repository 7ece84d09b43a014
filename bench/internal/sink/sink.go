package sink

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Addresses are where a sink listens, as "127.0.0.1:4711". They are also all
// that another process needs to read its counts.
type Addresses struct {
	// HTTP takes OTLP at /v1/traces, GRPC its service, and Datadog what an agent's
	// port 8126 takes.
	HTTP    string `json:"http"`
	GRPC    string `json:"grpc"`
	Datadog string `json:"datadog"`
	// Control answers Counts and takes SetLatency.
	Control string `json:"control"`
	PID     int    `json:"pid"`
}

// Counts are what a sink has taken since it started.
type Counts struct {
	// Spans and Requests are of all three kinds together; Bytes are of the bodies
	// as they came, compressed or not.
	Spans    uint64 `json:"spans"`
	Requests uint64 `json:"requests"`
	Bytes    uint64 `json:"bytes"`
	// Bad are requests that could not be read.
	Bad uint64 `json:"bad"`
}

// Sink is a running one, to the program that has started it.
type Sink struct {
	Addresses

	cmd   *exec.Cmd
	stdin io.Closer
}

// Start runs self, this program's executable, as a sink. It ends with Close,
// with ctx, and with this program.
func Start(ctx context.Context, self string) (*Sink, error) {
	cmd := exec.CommandContext(ctx, self, "sink")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the sink: %w", err)
	}
	s := &Sink{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.Addresses)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the sink: its addresses: %w", err), s.Close())
	}
	return s, nil
}

// Close ends the sink and waits for it.
func (s *Sink) Close() error {
	_ = s.stdin.Close()
	return s.cmd.Wait()
}

// CPU is the time that the sink has used so far.
func (a Addresses) CPU() (time.Duration, error) { return measure.ProcessCPU(a.PID) }

var client = &http.Client{Timeout: 10 * time.Second}

// Counts reads what the sink has taken so far.
func (a Addresses) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	err := a.control(ctx, http.MethodGet, "/counts", &c)
	return c, err
}

// SetLatency has every request wait before it is answered, from now on. Zero
// is at once.
func (a Addresses) SetLatency(ctx context.Context, d time.Duration) error {
	return a.control(ctx, http.MethodPost, "/latency?"+url.Values{"d": {d.String()}}.Encode(), nil)
}

// SetOpen shuts OTLP/HTTP, so that connections to it are refused, and opens it
// again; it is open at first.
func (a Addresses) SetOpen(ctx context.Context, open bool) error {
	return a.control(ctx, http.MethodPost, "/door?"+url.Values{"open": {strconv.FormatBool(open)}}.Encode(), nil)
}

func (a Addresses) control(ctx context.Context, method, path string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.Control+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the sink: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the sink: %s", resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// AwaitSpans returns when the sink has taken so many spans in all, or has taken
// none for as long as patience; the counts are what it has then.
func (a Addresses) AwaitSpans(ctx context.Context, want uint64, patience time.Duration) (Counts, error) {
	last, since := uint64(0), time.Now()
	for {
		c, err := a.Counts(ctx)
		if err != nil || c.Spans >= want {
			return c, err
		}
		if c.Spans != last {
			last, since = c.Spans, time.Now()
		}
		if time.Since(since) > patience {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return c, context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
