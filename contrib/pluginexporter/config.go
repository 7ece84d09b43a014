package pluginexporter

import (
	"errors"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/servetrace/servetrace/contrib/pluginexporter/internal/hosting"
	"github.com/servetrace/servetrace/host"
)

// Config is the exporter's part of the Collector's file. Its keys are the keys of
// tracing_config in the service file of servetrace, except for the keys of the Collector's
// exporters.
type Config struct {
	// ExporterPlugin is the list of plugins, a text with commas or a list of entries.
	// Empty: the variable SERVE_TRACING_EXPORTER_PLUGIN. At least one plugin is required.
	ExporterPlugin any `mapstructure:"exporter_plugin"`
	// ProcessorPlugin is the list of processor plugins in front of all these plugins, in the
	// same form. Empty: the variable SERVE_TRACING_PROCESSOR_PLUGIN, or none.
	ProcessorPlugin any `mapstructure:"processor_plugin"`
	// Plugins has settings of single plugins, by their names in the lists.
	Plugins map[string]Plugin `mapstructure:"plugins"`
	// WaitForResult reports a batch as exported after every plugin has delivered it. Default:
	// after the host has accepted it. Use it with a sending_queue that has a storage.
	WaitForResult bool `mapstructure:"wait_for_result"`
	// Queue is the Collector's queue in front of the host's queue. Default: none.
	Queue configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// Retry repeats a batch that the host refused because its queue was full. Default:
	// disabled, so that the receiver asks its client to send again.
	Retry configretry.BackOffConfig `mapstructure:"retry_on_failure"`
	// Settings are the other settings of the host: "max_age" is the value of the variable
	// SERVE_TRACING_MAX_AGE. A missing setting has the variable's value in the Collector's
	// environment.
	Settings map[string]any `mapstructure:",remain"`
}

// Plugin is the part of one plugin in a Config.
type Plugin = hosting.Plugin

func defaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	retry.Enabled = false
	return &Config{
		Queue:    configoptional.Default(exporterhelper.NewDefaultQueueConfig()),
		Retry:    retry,
		Settings: map[string]any{},
	}
}

// Validate returns all faults of the settings at once. It is called by the Collector.
func (c *Config) Validate() error {
	cfg, err := c.host()
	if err != nil {
		return err
	}
	return cfg.Validate()
}

// host returns the configuration of the host.
func (c *Config) host() (host.Config, error) {
	keys := hosting.Keys{
		Lists:   map[string]any{host.EnvPlugins: c.ExporterPlugin, host.EnvProcessors: c.ProcessorPlugin},
		Plugins: c.Plugins, Settings: c.Settings,
		Own: "exporter_plugin, processor_plugin, wait_for_result, sending_queue, retry_on_failure",
	}
	cfg, err := keys.Config(os.Getenv) //nolint:forbidigo // the Collector has no other form of the environment
	if cfg.Plugins == "" && err == nil {
		err = errors.New("exporter_plugin: is not set, and neither is " + host.EnvPlugins + ": want a list of plugins such as otlp,./mine")
	}
	return cfg, err
}
