package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/DataDog/datadog-agent/pkg/opentelemetry-mapping-go/otlp/attributes"
	"github.com/DataDog/datadog-agent/pkg/trace/agent"
	"github.com/DataDog/datadog-agent/pkg/trace/api"
	"github.com/DataDog/datadog-agent/pkg/trace/config"
	"github.com/DataDog/datadog-agent/pkg/trace/log"
	"github.com/DataDog/datadog-agent/pkg/trace/telemetry"
	"github.com/DataDog/datadog-go/v5/statsd"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
)

// host is the address that everything listens on.
const host = "127.0.0.1"

// runAgent runs the agent until ctx ends and all it took is with the intake.
func runAgent(ctx context.Context, o options, intake string) error {
	translator, err := attributes.NewTranslator(component.TelemetrySettings{Logger: zap.NewNop(), MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		return err
	}
	log.SetLogger(logger{})
	api.AttachEndpoint(api.Endpoint{
		Pattern: o.ready, Hidden: true,
		Handler: func(*api.HTTPReceiver) http.Handler { return readiness(o) },
	})
	agent.NewAgent(ctx, configure(o, intake, translator), telemetry.NewNoopCollector(), &statsd.NoOpClient{}, gzipped{}).Run()
	return nil
}

// configure gives the agent's own defaults with these differences: nothing
// leaves the machine; every trace that its client wants kept is kept, at any
// rate; nothing is refused because the machine is busy; payloads leave in the
// order that they were made.
func configure(o options, intake string, translator *attributes.Translator) *config.AgentConfig {
	c := config.New()
	c.Endpoints = []*config.Endpoint{{Host: intake, APIKey: strings.Repeat("0", 32)}}
	c.Proxy = nil
	c.TelemetryConfig.Enabled, c.EVPProxy.Enabled, c.OpenLineageProxy.Enabled = false, false, false
	c.StatsdEnabled, c.DebugServerPort = false, 0
	// Clients derive the agent's features from its version.
	c.AgentVersion = "7.82.0"
	c.Hostname, c.DefaultEnv = "testhost", "none"
	c.ReceiverHost, c.ReceiverPort, c.ReceiverSocket = host, o.port, o.socket
	if o.withoutV1 {
		c.ReceiverPort, c.ReceiverSocket = 0, o.inner
	}
	// Zero values make it refuse everything, with status 200.
	c.Decoders, c.DecoderTimeout, c.TraceBuffer, c.MaxConnections = 4, 30_000, 1000, 1000
	c.ReceiverTimeout = 60
	if o.stats == "" {
		c.TargetTPS = math.MaxInt32
	}
	c.TraceWriter.FlushPeriodSeconds, c.StatsWriter.FlushPeriodSeconds = 0.1, 0.1
	c.TraceWriter.ConnectionLimit = 1
	c.MaxMemory, c.MaxCPU = 0, 0
	c.OTLPReceiver = &config.OTLP{
		BindHost: host, GRPCPort: o.otlp, ProbabilisticSampling: 100,
		AttributesTranslator: translator, GrpcMaxRecvMsgSizeMib: 4,
	}
	// As agents are since 7.66.
	c.Features["enable_otlp_compute_top_level_by_span_kind"] = struct{}{}
	return c
}

// readiness answers 200 when the listeners that the agent starts beside HTTP
// can be reached.
func readiness(o options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		targets := [][2]string{{"tcp", net.JoinHostPort(host, strconv.Itoa(o.otlp))}}
		if o.socket != "" {
			targets = append(targets, [2]string{"unix", o.socket})
		}
		for _, t := range targets {
			connection, err := (&net.Dialer{}).DialContext(r.Context(), t[0], t[1])
			if err == nil {
				err = connection.Close()
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
	})
}

// gzipped is the compression of the agent's payloads.
type gzipped struct{}

func (gzipped) NewWriter(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func (gzipped) NewReader(r io.Reader) (io.ReadCloser, error)  { return gzip.NewReader(r) }
func (gzipped) Encoding() string                              { return "gzip" }

// logger writes the agent's warnings to standard error. A critical message ends the
// process: it means that a port is taken, and an agent without one of its listeners would
// confuse its tests.
type logger struct{}

func say(text string) error {
	_, err := fmt.Fprintln(os.Stderr, strings.TrimSpace(text))
	return err
}

func (logger) Trace(...any)                    {}
func (logger) Tracef(string, ...any)           {}
func (logger) Debug(...any)                    {}
func (logger) Debugf(string, ...any)           {}
func (logger) Info(...any)                     {}
func (logger) Infof(string, ...any)            {}
func (logger) Flush()                          {}
func (logger) Warn(v ...any) error             { return say("WARN " + fmt.Sprint(v...)) }
func (logger) Warnf(f string, v ...any) error  { return say("WARN " + fmt.Sprintf(f, v...)) }
func (logger) Error(v ...any) error            { return say("ERROR " + fmt.Sprint(v...)) }
func (logger) Errorf(f string, v ...any) error { return say("ERROR " + fmt.Sprintf(f, v...)) }
func (l logger) Critical(v ...any) error       { return l.Criticalf("%s", fmt.Sprint(v...)) }
func (logger) Criticalf(f string, v ...any) error {
	_ = say("CRITICAL " + fmt.Sprintf(f, v...)) // there is no more that can be done
	os.Exit(1)
	return nil
}
