package datadogexporter

import (
	"cmp"
	"context"
	"net/http"
	"os"

	ddotel "github.com/DataDog/dd-trace-go/v2/ddtrace/opentelemetry"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
)

// runFor ensures that the tracer runs with the settings of n. A new tracer gets service,
// version and environment from the first span. The tracer's statistics can have only one
// environment. If spans of another environment arrive, runFor restarts the tracer, and
// the agent computes the statistics from then on.
func (e *encoder) runFor(ctx context.Context, n *native, units []unit) error {
	b := &bridge{serviceNames: n.settings.serviceNames, shared: map[origin]shared{}}
	if e.owner == n {
		b = e.bridge
		clear(b.shared)
	}
	first := b.sharedBy(units[0].spans[0].span)
	env := cmp.Or(first.env, n.settings.env)
	again := e.owner != n
	for _, u := range units {
		own := cmp.Or(b.sharedBy(u.spans[0].span).env, n.settings.env)
		if n.statistics && (own != env || e.owner == n && own != e.env) {
			n.statistics, again = false, true
			n.settings.log.Info("spans of several environments arrive: the Datadog agent computes their statistics", "environment", own)
		}
	}
	if !again {
		return nil
	}
	if err := n.settings.agent.checkReachable(ctx); err != nil {
		return err
	}
	e.handBack()
	e.capture.serve(n)
	prepareEnvironment()
	provider := ddotel.NewTracerProvider(append(n.options(),
		tracer.WithService(first.service), tracer.WithEnv(env), tracer.WithServiceVersion(cmp.Or(first.version, n.settings.version)))...)
	b.otel, b.priorities = provider.Tracer(""), &n.priorities
	e.owner, e.bridge, e.env = n, b, env
	return nil
}

// options returns the tracer's options, except service, version and environment.
func (n *native) options() []tracer.StartOption {
	options := []tracer.StartOption{
		tracer.WithHTTPClient(&http.Client{Transport: &theEncoder.capture, Timeout: n.settings.agent.timeout}),
		tracer.WithAgentURL("http://" + tracersAgent),
		tracer.WithLogger(n.log), tracer.WithLogStartup(n.settings.startupLogs),
		tracer.WithStatsdClient(&health{capture: &theEncoder.capture}),
		tracer.WithTraceEnabled(true),
		// These products of Datadog would report on the plugin's process, and not on the
		// service.
		tracer.WithAppSecEnabled(false), tracer.WithLLMObsEnabled(false), tracer.WithDynamicInstrumentationEnabled(false),
		tracer.WithProfilerCodeHotspots(false), tracer.WithProfilerEndpoints(false),
	}
	if !n.statistics {
		options = append(options, tracer.WithStatsComputation(false))
	}
	return options
}

// prepareEnvironment sets variables for settings of dd-trace-go that have no option: the
// protocol, and that it does not send incomplete chunks. It also switches other products
// of Datadog off, and removes variables of OpenTelemetry that dd-trace-go would read.
func prepareEnvironment() {
	for name, value := range map[string]string{
		envProtocol: "0.4", "DD_TRACE_PARTIAL_FLUSH_ENABLED": "false",
		"DD_RUNTIME_METRICS_ENABLED": "false", "DD_RUNTIME_METRICS_V2_ENABLED": "false",
		"DD_DATA_STREAMS_ENABLED": "false", "DD_CIVISIBILITY_ENABLED": "false",
	} {
		_ = os.Setenv(name, value) // cannot fail, because the names are valid
	}
	for _, name := range []string{
		"OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		_ = os.Unsetenv(name)
	}
}

// handBack stops the tracer. It gives the remaining payloads, which are statistics, to
// the exporter for which the tracer ran.
func (e *encoder) handBack() {
	if e.owner == nil {
		return
	}
	tracer.Stop()
	payloads, _, _ := e.takePayloads()
	e.owner.addLate(payloads)
	e.owner, e.bridge = nil, nil
}

// release stops the tracer if it runs for n. It first waits until no other goroutine uses
// the tracer, or ctx ends.
func (e *encoder) release(ctx context.Context, n *native) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.leave()
	if e.owner == n {
		e.handBack()
	}
	return nil
}
