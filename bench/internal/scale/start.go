package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/spanpath"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/internal/wire"
)

// The shapes of starts.
const (
	shapeProgram = "start of a program, a span at once, flush"
	shapeService = "start of a service, a request at once"
	shapePlugin  = "start of a plugin alone"
)

const startRepeats = 5

func startCases() []suite.Case {
	newCase := func(shape, row, doc string, run func(context.Context, *suite.Env) (suite.Sample, error)) suite.Case {
		return suite.Case{Suite: Name, Shape: shape, Row: row, Doc: doc, Repeats: startRepeats, Run: run}
	}
	var cases []suite.Case
	for _, row := range sweepRows {
		cases = append(cases, newCase(shapeProgram, row, "from exec until ForceFlush has returned",
			func(ctx context.Context, env *suite.Env) (suite.Sample, error) { return startProgram(ctx, env, row) }))
	}
	return append(cases,
		newCase(shapeService, "hello, tracing off", "examples/hello, from exec until it has answered",
			func(ctx context.Context, env *suite.Env) (suite.Sample, error) { return startService(ctx, env, false) }),
		newCase(shapeService, "hello, plugins/otlp", "the same, and until the sink has its first span: batches of 200 ms",
			func(ctx context.Context, env *suite.Env) (suite.Sample, error) { return startService(ctx, env, true) }),
		newCase(shapePlugin, "plugins/otlp", "from exec until it has printed the handshake line", startPlugin))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// startProgram has this program run again as one with the row.
func startProgram(ctx context.Context, env *suite.Env, row string) (suite.Sample, error) {
	var m moments
	began := time.Now()
	if err := env.Child(ctx, Name, order{Row: row, Bin: env.Bin, Sink: env.Sink.Addresses}, &m); err != nil {
		return nil, err
	}
	s := suite.Sample{suite.Of(suite.Start, "running"): milliseconds(m.Running.Sub(began))}
	if row != spanpath.RowFloor {
		s[suite.Of(suite.Start, "delivered")] = milliseconds(m.Delivered.Sub(began))
	}
	return s, nil
}

// startPlugin runs the plugin as a host would, and ends it by the end of its
// standard input.
func startPlugin(ctx context.Context, env *suite.Env) (suite.Sample, error) {
	cmd := env.Command(ctx, filepath.Join(env.Bin, "plugins", "otlp"))
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "TMPDIR=" + env.Dir, wire.EnvSocketDir + "=" + env.Dir,
		wire.CookieKey + "=" + wire.CookieValue, fmt.Sprintf("%s=%d", wire.EnvProtocolVersions, wire.ProtocolVersion),
	}
	cmd.Stderr = nil
	r, err := run(cmd, cmd.StdoutPipe)
	if err != nil {
		return nil, err
	}
	_, err = r.lines.ReadString('\n')
	took := time.Since(r.began)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("handshake of the plugin: %w", err), r.end())
	}
	_ = r.end() // that it does not like to be left without a host is not what is asked
	return suite.Sample{suite.Of(suite.Start, "ready"): milliseconds(took)}, nil
}

// running is a process that this package has started.
type running struct {
	cmd   *exec.Cmd
	began time.Time
	stdin io.WriteCloser
	lines *bufio.Reader // what it prints
}

func run(cmd *exec.Cmd, output func() (io.ReadCloser, error)) (*running, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := output()
	if err != nil {
		return nil, err
	}
	r := &running{cmd: cmd, stdin: stdin, lines: bufio.NewReader(out), began: time.Now()}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return r, nil
}

// end ends the process by SIGTERM and the end of its input, and waits for it.
func (r *running) end() error {
	_ = r.stdin.Close()
	_ = r.cmd.Cancel()
	_, _ = io.Copy(io.Discard, r.lines) // a pipe that is full would keep it
	return r.cmd.Wait()
}

// startHello runs examples/hello until it takes requests, and gives its address.
func startHello(ctx context.Context, env *suite.Env, traced bool) (r *running, url string, err error) {
	cmd := env.Command(ctx, filepath.Join(env.Bin, "hello"), "--http", "127.0.0.1:0")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + env.Dir}
	if traced {
		cmd.Env = append(cmd.Env, "SERVE_TRACING_EXPORTER_PLUGIN="+filepath.Join(env.Bin, "plugins", "otlp"),
			"SERVE_TRACING_PLUGIN_WRITABLE=allow", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+env.Sink.HTTP)
	}
	cmd.Stderr = nil
	if r, err = run(cmd, cmd.StderrPipe); err != nil {
		return nil, "", err
	}
	hint := regexp.MustCompile(`curl -i (http://\S+/)\s`)
	said := ""
	for {
		line, err := r.lines.ReadString('\n')
		said += line
		if err != nil {
			return nil, "", errors.Join(fmt.Errorf("start of hello: %w: %s", err, said), r.end())
		}
		if found := hint.FindStringSubmatch(line); found != nil {
			return r, found[1], nil
		}
	}
}

// arrival is how often the sink is asked for the first span.
const arrival = time.Millisecond

func startService(ctx context.Context, env *suite.Env, traced bool) (sample suite.Sample, err error) {
	before, err := env.Sink.Counts(ctx)
	if err != nil {
		return nil, err
	}
	r, url, err := startHello(ctx, env, traced)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	sample = suite.Sample{suite.Of(suite.Start, "ready"): milliseconds(time.Since(r.began))}
	if err := get(ctx, url); err != nil {
		return nil, err
	}
	sample[suite.Of(suite.Start, "answered")] = milliseconds(time.Since(r.began))
	if !traced {
		return sample, nil
	}
	if err := awaitSpan(ctx, env.Sink.Addresses, before.Spans); err != nil {
		return nil, err
	}
	sample[suite.Of(suite.Start, "delivered")] = milliseconds(time.Since(r.began))
	return sample, nil
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// awaitSpan returns when the sink has more than it had.
func awaitSpan(ctx context.Context, into sink.Addresses, had uint64) error {
	for deadline := time.Now().Add(childTime); time.Now().Before(deadline); time.Sleep(arrival) {
		c, err := into.Counts(ctx)
		if err != nil {
			return err
		}
		if c.Spans > had {
			return nil
		}
	}
	return errors.New("the sink has got no span")
}

// startChild runs a child that stays, and returns when it has nothing more to
// do.
func startChild(ctx context.Context, env *suite.Env, row string) (*running, moments, error) {
	cmd := env.Command(ctx, env.Self, "child", Name)
	r, err := run(cmd, cmd.StdoutPipe)
	if err != nil {
		return nil, moments{}, err
	}
	var m moments
	err = json.NewEncoder(r.stdin).Encode(order{Row: row, Bin: env.Bin, Sink: env.Sink.Addresses, Stay: true})
	if err == nil {
		err = json.NewDecoder(r.lines).Decode(&m)
	}
	if err != nil {
		return nil, m, errors.Join(fmt.Errorf("child with %q: %w", row, err), r.end())
	}
	return r, m, nil
}
