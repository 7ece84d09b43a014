package pluginexporter

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/host"
)

// Config is the exporter's part of the Collector's file. Its keys are the keys of
// tracing_config in the service file of servetrace, except for the keys of the Collector's
// exporters.
type Config struct {
	// ExporterPlugin is the list of plugins, a text with commas or a list of entries.
	// Empty: the variable SERVE_TRACING_EXPORTER_PLUGIN. At least one plugin is required.
	ExporterPlugin any `mapstructure:"exporter_plugin"`
	// Plugins has settings of single plugins, by their names in the list.
	Plugins map[string]Plugin `mapstructure:"plugins"`
	// WaitForResult reports a batch as exported after every plugin has delivered it.
	// Default: after the host has taken it in. Use it with a sending_queue that has a
	// storage.
	WaitForResult bool `mapstructure:"wait_for_result"`
	// Queue is the Collector's queue in front of the host's queue. Default: none.
	Queue configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// Retry repeats a batch for which the host had no room. Default: disabled, so that
	// the receiver asks its client to send again.
	Retry configretry.BackOffConfig `mapstructure:"retry_on_failure"`
	// Settings are the other settings of the host: "max_age" is the value of the variable
	// SERVE_TRACING_MAX_AGE. A missing setting has the variable's value in the Collector's
	// environment.
	Settings map[string]any `mapstructure:",remain"`
}

// Plugin is the part of one plugin in a Config.
type Plugin struct {
	// Config is the plugin's configuration.
	Config map[string]any `mapstructure:"config"`
	// Env are variables of the Collector's environment for the plugin, beside the
	// variables that it declares: names, or prefixes with a star ("AWS_*").
	Env []string `mapstructure:"env"`
}

// defaultWatch replaces SIGHUP, with which the Collector reloads its own file.
const defaultWatch = "5s"

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
	cfg, err := c.host(os.Getenv) //nolint:forbidigo // the Collector has no other form of the environment
	if err != nil {
		return err
	}
	return cfg.Validate()
}

// host returns the configuration of the host.
func (c *Config) host(getenv func(string) string) (host.Config, error) {
	values, faults := c.variables()
	read := map[string]bool{}
	cfg, err := host.ConfigFromEnv(func(name string) string {
		read[name] = true
		if value, ok := values[name]; ok {
			return value
		}
		if value := getenv(name); value != "" || name != host.EnvPluginWatch {
			return value
		}
		return defaultWatch
	})
	faults = append(faults, err)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !read[name] {
			faults = append(faults, fmt.Errorf("%s: unknown key: want exporter_plugin, plugins, wait_for_result, sending_queue, retry_on_failure, or a setting of the host such as max_age", key(name)))
		}
	}
	if cfg.Plugins == "" && err == nil {
		faults = append(faults, errors.New("exporter_plugin: is not set, and neither is "+host.EnvPlugins+": want a list of plugins such as otlp,./mine"))
	}
	for name, plugin := range c.Plugins {
		faults = append(faults, plugin.apply(name, &cfg))
	}
	return cfg, errors.Join(faults...)
}

// variables returns the settings as variables of the host.
func (c *Config) variables() (values map[string]string, faults []error) {
	values = map[string]string{}
	switch list := c.ExporterPlugin.(type) {
	case nil:
	case string:
		values[host.EnvPlugins] = list
	case []any:
		var entries []string
		for _, entry := range list {
			entries = append(entries, fmt.Sprint(entry))
		}
		values[host.EnvPlugins] = strings.Join(entries, ",")
	default:
		faults = append(faults, fmt.Errorf("exporter_plugin: %v: want a text or a list of texts", list))
	}
	for name, value := range c.Settings {
		switch value.(type) {
		case map[string]any, []any:
			faults = append(faults, fmt.Errorf("%s: %v: want a single value", name, value))
		case nil:
		default:
			values[variable(name)] = fmt.Sprint(value)
		}
	}
	return values, faults
}

const prefix = "SERVE_TRACING_"

func variable(key string) string { return prefix + strings.ToUpper(key) }
func key(variable string) string { return strings.ToLower(strings.TrimPrefix(variable, prefix)) }

// apply adds the plugin's settings to cfg.
func (p Plugin) apply(name string, cfg *host.Config) error {
	if p.Config != nil {
		document, err := yaml.Marshal(p.Config)
		if err != nil {
			return fmt.Errorf("plugins.%s.config: %w", name, err)
		}
		if cfg.PluginConfigs == nil {
			cfg.PluginConfigs = map[string]host.PluginConfig{}
		}
		cfg.PluginConfigs[name] = host.PluginConfig{Document: document}
	}
	if p.Env != nil {
		if cfg.PluginEnv == nil {
			cfg.PluginEnv = map[string][]string{}
		}
		cfg.PluginEnv[name] = p.Env
	}
	return nil
}
