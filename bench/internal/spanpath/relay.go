package spanpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

const (
	rowRelay         = "servetrace relay, plugins/otlp"
	rowCollector     = "Collector, otlp_http"
	rowRelayGzip     = "servetrace relay, plugins/otlp, gzip"
	rowCollectorGzip = "Collector, otlp_http, gzip"
)

// relayRow is a relay and the compression that it sends with.
type relayRow struct {
	start       func(ctx context.Context, env *suite.Env, socket, compression string) (*child.Child, error)
	compression string
}

var relayRows = map[string]relayRow{
	rowRelay: {startRelay, "none"}, rowRelayGzip: {startRelay, "gzip"},
	rowCollector: {startCollector, "none"}, rowCollectorGzip: {startCollector, "gzip"},
}

// cpuRelay is the CPU of all processes of a relay.
const cpuRelay = "CPU, ns/span"

var relayShape = suite.Shape{
	Name: "relay, 30k spans/s", Rows: []string{rowRelay, rowCollector, rowRelayGzip, rowCollectorGzip}, Quick: []string{rowRelay}, Repeats: 3, Together: true,
	Run: func(ctx context.Context, env *suite.Env, rows []string) (suite.Round, error) {
		return relayLoad{rate: 30_000, turns: 4, length: 500 * time.Millisecond}.run(ctx, env, rows)
	},
	Claims: []suite.Claim{
		suite.NewRatio("CPU of the relay and its plugin, vs a Collector", cpuRelay, rowRelay, rowCollector, 0.50, 0),
		suite.NewRatio("CPU of the relay and its plugin, vs a Collector, gzip on both", cpuRelay, rowRelayGzip, rowCollectorGzip, 0.50, 0),
		value("spans lost by the relay", "", lost, rowRelay, 0, 0).GatedAt(0.5),
	},
}

// relayLoad is a load of OTLP/gRPC requests on relays that take turns.
type relayLoad struct {
	rate, turns int // rate in spans a second
	length      time.Duration
}

// relay is a process that takes spans at a socket and sends them to the sink.
type relay struct {
	*child.Child
	conn *grpc.ClientConn

	cpu             time.Duration
	sent, delivered uint64
}

// startRelay starts "servetrace relay" with plugins/otlp.
func startRelay(ctx context.Context, env *suite.Env, socket, compression string) (*child.Child, error) {
	return child.StartProgram(ctx, []string{
		"SERVE_TRACING_EXPORTER_PLUGIN=" + filepath.Join(env.Bin, "plugins", pluginOTLP),
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + env.Sink.HTTP, "SERVE_TRACING_PLUGIN_WRITABLE=allow",
		"OTEL_EXPORTER_OTLP_COMPRESSION=" + compression,
	}, filepath.Join(env.Bin, "servetrace"), "relay", "--socket", socket)
}

// startCollector starts a Collector with the defaults of its receiver and exporter. By
// default, the exporter compresses with gzip.
func startCollector(ctx context.Context, env *suite.Env, socket, compression string) (*child.Child, error) {
	if _, err := os.Stat(env.Collector); err != nil {
		return nil, suite.SkippedError(fmt.Sprintf("%s: there is no Collector at %q; make peers PEERS=otelcol builds it", rowCollector, env.Collector))
	}
	type object = map[string]any
	config, err := json.Marshal(object{ // JSON is YAML
		"receivers": object{"otlp": object{"protocols": object{"grpc": object{"endpoint": socket, "transport": "unix"}}}},
		"exporters": object{"otlp_http": object{"endpoint": "http://" + env.Sink.HTTP, "compression": compression}},
		"service": object{
			"telemetry": object{"metrics": object{"level": "none"}, "logs": object{"level": "warn"}},
			"pipelines": object{"traces": object{"receivers": []string{"otlp"}, "exporters": []string{"otlp_http"}}},
		},
	})
	file := socket + ".json"
	if err := errors.Join(err, os.WriteFile(file, config, 0o600)); err != nil {
		return nil, err
	}
	return child.StartProgram(ctx, nil, env.Collector, "--config", file)
}

// run measures relays once. The first turn does not count.
func (l relayLoad) run(ctx context.Context, env *suite.Env, names []string) (round suite.Round, err error) {
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	relays, round := map[string]*relay{}, suite.Round{}
	var skipped suite.SkippedError
	for i, name := range names {
		r, failed := openRelay(ctx, env, name, filepath.Join(dir, strconv.Itoa(i)))
		if errors.As(failed, &skipped) {
			continue
		}
		if failed != nil {
			return nil, fmt.Errorf("%s: %w", name, failed)
		}
		relays[name] = r
		defer func() { err = errors.Join(err, r.conn.Close(), r.Terminate()) }()
	}
	body := newRequest()
	for turn := range l.turns + 1 {
		for name, r := range relays {
			if turn == 1 {
				r.cpu, r.sent, r.delivered = 0, 0, 0
			}
			if err := r.turn(ctx, env.Sink, l, body); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for name, r := range relays {
		round[name] = suite.Sample{
			cpuRelay: float64(r.cpu) / float64(r.delivered), lost: float64(r.sent - r.delivered),
			rate: float64(r.sent) / (l.length * time.Duration(l.turns)).Seconds(),
		}
	}
	if skipped != "" {
		err = skipped
	}
	return round, err
}

func openRelay(ctx context.Context, env *suite.Env, name, socket string) (*relay, error) {
	row := relayRows[name]
	c, err := row.start(ctx, env, socket, row.compression)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(sink.Codec{}), grpc.WaitForReady(true)))
	return &relay{Child: c, conn: conn}, err
}

// requestSpans is the number of spans of a request, which is encoded only once.
const requestSpans = 512

func newRequest() []byte {
	recorder := tracetest.NewSpanRecorder()
	span := produceWith(newProvider(recorder))
	for i := range requestSpans {
		span(i)
	}
	var e sdkspan.Encoder
	for _, s := range recorder.Ended() {
		e.Append(s)
	}
	return e.AppendRequest(nil)
}

// deliveryTime bounds the wait for the last spans of a turn.
const deliveryTime = 5 * time.Second

// turn sends spans for a time, and waits until all are delivered. A request that is not
// taken counts as lost.
func (r *relay) turn(ctx context.Context, to *sink.Sink, l relayLoad, body []byte) error {
	before, err1 := to.Spans(ctx)
	cpu, err2 := r.usage()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.length+deliveryTime)
	defer cancel()
	began := time.Now()
	sent := requestSpans * producers(2, func() (requests uint64) {
		for ; time.Since(began) < l.length; requests++ {
			_ = r.conn.Invoke(ctx, coltracepb.TraceService_Export_FullMethodName, &sink.Message{Data: body}, &sink.Message{}) // lost
			next := time.Duration(requests+1) * time.Second * 2 * requestSpans / time.Duration(l.rate)
			time.Sleep(time.Until(began.Add(next)))
		}
		return requests
	})
	taken := uint64(0)
	for taken < sent && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		now, err := to.Spans(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		taken = now - before
	}
	used, err := r.usage()
	r.cpu += used - cpu
	r.sent += sent
	r.delivered += min(sent, taken)
	return err
}

// usage returns the CPU of the process and its plugin.
func (r *relay) usage() (time.Duration, error) {
	cpu, err := measure.ProcessCPU(r.PID)
	return cpu + measure.ChildrenCPU(r.PID), err
}
