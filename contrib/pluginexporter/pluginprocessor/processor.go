// Package pluginprocessor is a processor for the OpenTelemetry Collector that runs processor
// plugins of servetrace. A Collector that the Collector Builder (ocb) has built with it
// loads, replaces and removes processors without another build:
//
//	processors:
//	  servetraceplugin:
//	    processor_plugin: ./tenant,./redactor
//
// The life of the processor:
//
//  1. The Collector validates the [Config] and calls Start. Start opens a Unix socket, and
//     starts a host.Host with the processor plugins. The only exporter in the Host's list is
//     this socket.
//  2. Each batch is encoded as OTLP and given to the Host, which sends it through the
//     plugins, repeats failed calls, and restarts plugins. The result arrives at the socket,
//     and goes to the rest of the Collector's pipeline. ConsumeTraces blocks until the
//     pipeline has answered.
//  3. A plugin whose file has changed is replaced within some seconds, without a loss.
//  4. Shutdown sends the remaining spans, stops the plugins and closes the socket.
//
// Open this file, then next.go.
package pluginprocessor

import (
	"context"
	"errors"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/metric"

	"github.com/servetrace/servetrace/contrib/pluginexporter/internal/hosting"
	"github.com/servetrace/servetrace/host"
)

// Type is the processor's type in the Collector's file.
const Type = "servetraceplugin"

// Config is the configuration of the processor in the Collector's file. Its keys are the keys
// of tracing_config in the service file of servetrace.
type Config struct {
	// ProcessorPlugin is the list of processor plugins: a text with commas, or a list of texts.
	// Each batch goes through the plugins in order. If the list is empty, the variable
	// SERVE_TRACING_PROCESSOR_PLUGIN has it. At least one plugin is required.
	ProcessorPlugin any `mapstructure:"processor_plugin"`
	// Plugins has the settings of single plugins, by the plugin's name in the list.
	Plugins map[string]Plugin `mapstructure:"plugins"`
	// Settings are the other settings of the host. For example, "max_age" replaces the variable
	// SERVE_TRACING_MAX_AGE. If a setting is missing, the variable in the Collector's
	// environment counts.
	Settings map[string]any `mapstructure:",remain"`
}

// Plugin has the settings of one plugin in a Config.
type Plugin = hosting.Plugin

// NewFactory returns the factory of the processor, for traces only.
func NewFactory() processor.Factory {
	return processor.NewFactory(component.MustNewType(Type),
		func() component.Config { return &Config{Settings: map[string]any{}} },
		processor.WithTraces(newTraces, component.StabilityLevelDevelopment))
}

// Validate returns an error that joins all faults of the settings. The Collector calls it.
func (c *Config) Validate() error {
	cfg, err := c.host("/next.sock")
	if err != nil {
		return err
	}
	return cfg.Validate()
}

// host returns the configuration of a host that sends the results of the plugins to a Unix
// socket at this path.
func (c *Config) host(socket string) (host.Config, error) {
	keys := hosting.Keys{
		Lists: map[string]any{
			host.EnvPlugins: hosting.Collector + "=unix://" + socket, host.EnvProcessors: c.ProcessorPlugin,
		},
		Plugins: c.Plugins, Settings: c.Settings,
		Own: "processor_plugin",
	}
	cfg, err := keys.Config(func(name string) string {
		if name == host.EnvExporterProcessors {
			return "" // this variable is for exporter plugins, and the host has none
		}
		return os.Getenv(name) //nolint:forbidigo // the Collector passes no environment to its components
	})
	if cfg.Processors == "" && err == nil {
		err = errors.New("processor_plugin: is not set, and neither is " + host.EnvProcessors + ": want a list of plugins such as redactor,./mine")
	}
	return cfg, err
}

// newTraces returns a processor for traces. The Collector then calls its Start.
func newTraces(_ context.Context, set processor.Settings, c component.Config, next consumer.Traces) (processor.Traces, error) {
	cfg := c.(*Config)
	return &traces{cfg: cfg, set: set, next: next}, cfg.Validate()
}

// traces is the processor. Its methods except Start are safe for concurrent use.
type traces struct {
	cfg  *Config
	set  processor.Settings
	next consumer.Traces

	// These fields are set by Start.
	host     *host.Host
	socket   *socket
	observed metric.Registration
}

// Capabilities reports that the processor does not change the batches that it gets. The next
// consumer gets new batches from the socket.
func (*traces) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// Start opens the socket, and starts the host. It does not wait for the plugins.
func (p *traces) Start(context.Context, component.Host) (err error) {
	if p.socket, err = listen(p.next, p.set.Logger); err != nil {
		return err
	}
	cfg, err := p.cfg.host(p.socket.path)
	if err != nil {
		return err
	}
	if p.host, err = hosting.NewHost(cfg, p.set.Logger); err != nil {
		return err
	}
	if p.observed, err = hosting.Observe(p.set.MeterProvider, p.host, "processor", p.set.ID.String()); err != nil {
		return err
	}
	return p.host.Start(context.Background())
}

// ConsumeTraces gives a batch to the host. It blocks until the rest of the pipeline has
// answered the result, or ctx ends.
func (p *traces) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	return hosting.Send(ctx, p.host, td, p.set.ID.String(), true)
}

// Shutdown sends the remaining spans, and ends the plugins, the metrics and the socket.
func (p *traces) Shutdown(ctx context.Context) (err error) {
	if p.host != nil {
		err = p.host.Shutdown(ctx)
	}
	if p.observed != nil {
		err = errors.Join(err, p.observed.Unregister())
	}
	if p.socket != nil {
		err = errors.Join(err, p.socket.close())
	}
	return err
}
