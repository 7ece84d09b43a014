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

// Config is the configuration of the exporter in the Collector's file. sending_queue,
// retry_on_failure and wait_for_result are keys of the Collector or of this exporter. All
// other keys are the keys of tracing_config in the service file of servetrace.
type Config struct {
	// ExporterPlugin is the list of plugins: a text with commas, or a list of texts. If it is
	// empty, the variable SERVE_TRACING_EXPORTER_PLUGIN has the list. At least one plugin is
	// required.
	ExporterPlugin any `mapstructure:"exporter_plugin"`
	// ProcessorPlugin is the list of processor plugins that run before all plugins of
	// ExporterPlugin, in the same form. If it is empty, the variable
	// SERVE_TRACING_PROCESSOR_PLUGIN has the list, which may be empty, too.
	ProcessorPlugin any `mapstructure:"processor_plugin"`
	// Plugins has the settings of single plugins, by the plugin's name in a list.
	Plugins map[string]Plugin `mapstructure:"plugins"`
	// WaitForResult is true if a batch counts as exported only when every plugin has
	// delivered it. By default, it counts as exported when the host has accepted it. Use it
	// with a sending_queue that has a storage.
	WaitForResult bool `mapstructure:"wait_for_result"`
	// Queue is the Collector's queue, before the queue of the host. Default: no queue.
	Queue configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// Retry repeats a batch that the host refused because its queue was full. Default:
	// disabled, so that the receiver asks its client to send again.
	Retry configretry.BackOffConfig `mapstructure:"retry_on_failure"`
	// Settings are the other settings of the host. For example, "max_age" replaces the variable
	// SERVE_TRACING_MAX_AGE. If a setting is missing, the variable in the Collector's
	// environment counts.
	Settings map[string]any `mapstructure:",remain"`
}

// Plugin has the settings of one plugin in a Config.
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

// Validate returns an error that joins all faults of the settings. The Collector calls it.
func (c *Config) Validate() error {
	cfg, err := c.host()
	if err != nil {
		return err
	}
	return cfg.Validate()
}

// host returns the configuration of the host.Host for the plugins.
func (c *Config) host() (host.Config, error) {
	keys := hosting.Keys{
		Lists:   map[string]any{host.EnvPlugins: c.ExporterPlugin, host.EnvProcessors: c.ProcessorPlugin},
		Plugins: c.Plugins, Settings: c.Settings,
		Own: "exporter_plugin, processor_plugin, wait_for_result, sending_queue, retry_on_failure",
	}
	cfg, err := keys.Config(os.Getenv) //nolint:forbidigo // the Collector passes no environment to its components
	if cfg.Plugins == "" && err == nil {
		err = errors.New("exporter_plugin: is not set, and neither is " + host.EnvPlugins + ": want a list of plugins such as otlp,./mine")
	}
	return cfg, err
}
