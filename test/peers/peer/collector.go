package peer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is a running OpenTelemetry Collector that takes OTLP over HTTP and
// gRPC and writes every batch to a file, or hands it on.
type Collector struct {
	tb      testing.TB
	options collectorOptions
	// program is the executable, dir the folder of its files.
	program, dir string
	// healthPath is drawn, so that a neighbour's Collector that has taken a port
	// of ours is not mistaken for it.
	healthPath           string
	http, grpc, healthAt int
	process              *process
	file                 *frameFile
	// batches are the contents of the file that were read, and spans is their number.
	batches []*tracepb.ResourceSpans
	spans   int
}

type collectorOptions struct {
	token              string
	tokenHeader        string // empty: Authorization, with the scheme Bearer
	cert, key, clients string
	// forward is where batches go by OTLP/gRPC, instead of to a file.
	forward string
	// starved: the memory_limiter refuses all.
	starved bool
}

// CollectorOption changes the Collector that StartCollector starts.
type CollectorOption func(*collectorOptions)

// WithToken makes the Collector refuse clients without the header
// "Authorization: Bearer TOKEN": with status 401, and code Unauthenticated.
func WithToken(token string) CollectorOption {
	return func(o *collectorOptions) { o.token = token }
}

// WithTokenIn makes the Collector refuse clients without the header "NAME: TOKEN",
// as WithToken does. Some vendors take keys in this way.
func WithTokenIn(header, token string) CollectorOption {
	return func(o *collectorOptions) { o.tokenHeader, o.token = header, token }
}

// WithTLS has both ports speak TLS, with a certificate and its key in two PEM
// files.
func WithTLS(cert, key string) CollectorOption {
	return func(o *collectorOptions) { o.cert, o.key = cert, key }
}

// WithoutMemory makes the Collector refuse everything until Restart, like a Collector
// whose memory is used up: the memory_limiter gets a bound that it always exceeds.
func WithoutMemory() CollectorOption {
	return func(o *collectorOptions) { o.starved = true }
}

// WithClientCA makes the Collector demand a client certificate that an authority in a
// PEM file has signed. It needs WithTLS.
func WithClientCA(ca string) CollectorOption {
	return func(o *collectorOptions) { o.clients = ca }
}

// forwardTo makes the Collector send every batch to an address by OTLP/gRPC before it
// answers the sender, and pass on the result.
func forwardTo(address string) CollectorOption {
	return func(o *collectorOptions) { o.forward = address }
}

// StartCollector starts a Collector and returns when it takes spans. It is
// stopped when the test ends.
func StartCollector(tb testing.TB, opts ...CollectorOption) *Collector {
	tb.Helper()
	c := &Collector{tb: tb, program: program(tb, "otelcol", "otelcol"), dir: tb.TempDir(), healthPath: "/" + rand.Text()}
	for _, o := range opts {
		o(&c.options)
	}
	c.file = &frameFile{tb: tb, path: filepath.Join(c.dir, "spans.binpb")}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the Collector's log:\n%s", logText(c.logFile()))
		}
	})
	c.process = startSomewhere(tb, c.logFile(), func() (*process, error) {
		ports := freePorts(tb, 3)
		c.http, c.grpc, c.healthAt = ports[0], ports[1], ports[2]
		return c.start()
	})
	tb.Cleanup(func() {
		if c.process != nil {
			c.Stop()
		}
	})
	return c
}

// startSomewhere starts a process until none of its ports is taken.
func startSomewhere(tb testing.TB, log string, start func() (*process, error)) *process {
	tb.Helper()
	for try := 1; ; try++ {
		var before int64
		if info, err := os.Stat(log); err == nil {
			before = info.Size()
		}
		p, err := start()
		if err == nil {
			return p
		}
		if try == startTries || !portTaken(log, before) {
			tb.Fatal(err)
		}
	}
}

// start starts the process on the ports that are set.
func (c *Collector) start() (*process, error) {
	settings, err := json.Marshal(c.settings())
	if err != nil {
		return nil, err
	}
	file := filepath.Join(c.dir, "collector.json") // JSON is YAML
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return nil, err
	}
	p, err := launch("the Collector", c.program, []string{"--config", file}, nil, c.logFile())
	if err != nil {
		return nil, err
	}
	if err := p.ready("http://" + loopback(c.healthAt) + c.healthPath); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

type object = map[string]any

func (c *Collector) settings() object {
	receiver := func(port int, limit string, most int) object {
		// Above the defaults of a Collector, 20 MiB and 4 MiB: the tests send spans as
		// large as the host accepts.
		o := object{"endpoint": loopback(port), limit: most}
		if c.options.token != "" {
			o["auth"] = object{"authenticator": "bearertokenauth"}
		}
		if c.options.cert != "" {
			tls := object{"cert_file": c.options.cert, "key_file": c.options.key}
			if c.options.clients != "" {
				tls["client_ca_file"] = c.options.clients
			}
			o["tls"] = tls
		}
		return o
	}
	extensions := object{"health_check": object{"endpoint": loopback(c.healthAt), "path": c.healthPath}}
	names := []string{"health_check"}
	if c.options.token != "" {
		auth := object{"token": c.options.token}
		if c.options.tokenHeader != "" {
			auth["header"], auth["scheme"] = c.options.tokenHeader, ""
		}
		extensions["bearertokenauth"] = auth
		names = append(names, "bearertokenauth")
	}
	// Length and bytes of each message. JSON cannot express some values (NaN) and
	// changes others (invalid UTF-8). There is no queue: an answered message is in
	// the file after a flush, and a message that was not passed on is an error.
	exporter, settings := "file", object{
		"path": c.file.path, "format": "proto", "append": true, "flush_interval": "50ms",
	}
	if c.options.forward != "" {
		exporter, settings = "otlp_grpc", object{
			"endpoint": c.options.forward, "tls": object{"insecure": true}, "compression": "none",
			"sending_queue": object{"enabled": false}, "retry_on_failure": object{"enabled": false},
		}
	}
	pipeline, processors := object{"receivers": []string{"otlp"}, "exporters": []string{exporter}}, object{}
	if c.options.starved {
		processors["memory_limiter"] = object{"check_interval": "50ms", "limit_mib": 1}
		pipeline["processors"] = []string{"memory_limiter"}
	}
	return object{
		"extensions": extensions,
		"processors": processors,
		"receivers": object{"otlp": object{"protocols": object{
			"http": receiver(c.http, "max_request_body_size", 64<<20),
			"grpc": receiver(c.grpc, "max_recv_msg_size_mib", 64),
		}}},
		"exporters": object{exporter: settings},
		"service": object{
			"extensions": names,
			"telemetry":  object{"metrics": object{"level": "none"}, "logs": object{"level": "warn", "disable_stacktrace": true}},
			"pipelines":  object{"traces": pipeline},
		},
	}
}

func (c *Collector) logFile() string { return filepath.Join(c.dir, "log") }

func (c *Collector) scheme() string {
	if c.options.cert != "" {
		return "https"
	}
	return "http"
}

// HTTP is the endpoint for OTLP/HTTP, http://127.0.0.1:PORT; https with TLS.
// Safe for concurrent use.
func (c *Collector) HTTP() string { return c.scheme() + "://" + loopback(c.http) }

// GRPC is the endpoint for OTLP/gRPC, in the same form. Safe for concurrent use.
func (c *Collector) GRPC() string { return c.scheme() + "://" + loopback(c.grpc) }

// Spans is everything that has arrived by now, in the order of arrival, one or
// more messages for each batch. The messages are the caller's to read, not to
// change. An answer to the sender may be some 50 ms ahead of it.
func (c *Collector) Spans() []*tracepb.ResourceSpans {
	c.tb.Helper()
	for _, frame := range c.file.next() {
		var data tracepb.TracesData
		if err := proto.Unmarshal(frame, &data); err != nil {
			c.tb.Fatalf("a batch of %d bytes: %v", len(frame), err)
		}
		for _, rs := range data.ResourceSpans {
			c.batches = append(c.batches, rs)
			for _, ss := range rs.ScopeSpans {
				c.spans += len(ss.Spans)
			}
		}
	}
	return c.batches
}

// WaitSpans blocks until at least n spans have arrived, and returns the result of
// Spans. It ends the test if nothing new arrives for a minute.
func (c *Collector) WaitSpans(n int) []*tracepb.ResourceSpans {
	c.tb.Helper()
	waitFor(c.tb, fmt.Sprintf("%d spans at the Collector", n), n, func() int {
		c.Spans()
		return c.spans
	})
	return c.batches
}

// Raw returns the file itself, all messages as protobuf, in which a test can search for
// bytes that must not be there.
func (c *Collector) Raw() []byte { c.tb.Helper(); return c.file.raw() }

// Log returns the output of the Collector, at most the last 32 KiB.
func (c *Collector) Log() string { return logText(c.logFile()) }

// Stop ends the Collector as an operator would. Its ports refuse connections
// then, and Spans goes on to work.
func (c *Collector) Stop() {
	c.tb.Helper()
	if c.process == nil {
		c.tb.Fatal("the Collector is stopped already")
	}
	if err := c.process.stop(); err != nil {
		c.tb.Error(err)
	}
	c.process = nil
}

// Restart starts a Collector again that was stopped, on the same ports and with
// the same file, and returns when it takes spans.
func (c *Collector) Restart() {
	c.tb.Helper()
	if c.process != nil {
		c.tb.Fatal("the Collector is running: Stop it first")
	}
	c.options.starved = false
	p, err := c.start()
	if err != nil {
		c.tb.Fatal(err)
	}
	c.process = p
}

// CollectorProgram returns the path of the Collector's executable.
func CollectorProgram(tb testing.TB) string {
	tb.Helper()
	return program(tb, "otelcol", "otelcol")
}
