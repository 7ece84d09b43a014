// Package hosting has the parts that the components of this module share: a host.Host with
// the settings in the Collector's file, batches for it, and its accounting as metrics of
// the Collector.
//
// Open this file first.
package hosting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/host"
)

// Keys are the keys of a component in the Collector's file. They are the keys of
// tracing_config in the service file of servetrace.
type Keys struct {
	// Lists are the lists of plugins, by variable ("SERVE_TRACING_EXPORTER_PLUGIN"): texts
	// with commas, or lists of entries. Nil: the variable in the environment.
	Lists map[string]any
	// Plugins has settings of single plugins, by their names in the lists.
	Plugins map[string]Plugin
	// Settings are other settings of the host: "max_age" is the value of the variable
	// SERVE_TRACING_MAX_AGE.
	Settings map[string]any
	// Own names the component's other keys, for an error message.
	Own string
}

// Plugin is the part of one plugin.
type Plugin struct {
	// Config is the plugin's configuration.
	Config map[string]any `mapstructure:"config"`
	// Env are variables of the Collector's environment for the plugin, beside the
	// variables that it declares: names, or prefixes with a star ("AWS_*").
	Env []string `mapstructure:"env"`
	// Processors are processor plugins of this exporter plugin alone: a text with commas,
	// or a list of entries.
	Processors any `mapstructure:"processors"`
	// Fail is "closed" or "open", for a processor plugin. Default: closed.
	Fail string `mapstructure:"fail"`
}

// defaultWatch is the interval at which the host looks for changed plugin files. It
// replaces SIGHUP, because the Collector reloads its own file at this signal.
const defaultWatch = "5s"

// Config returns the configuration of the host. getenv must behave like os.Getenv. The
// error joins all faults.
func (k Keys) Config(getenv func(string) string) (host.Config, error) {
	values, faults := k.variables()
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
		_, twice := k.Settings[key(name)]
		if _, own := k.Lists[name]; !read[name] || own && twice { // then the setting is no key of the component
			faults = append(faults, fmt.Errorf("%s: unknown key: want %s, plugins, or a setting of the host such as max_age", key(name), k.Own))
		}
	}
	for name, plugin := range k.Plugins {
		faults = append(faults, plugin.apply(name, &cfg))
	}
	return cfg, errors.Join(faults...)
}

// variables returns the settings as variables of the host.
func (k Keys) variables() (values map[string]string, faults []error) {
	values = map[string]string{}
	for name, value := range k.Settings {
		switch value.(type) {
		case map[string]any, []any:
			faults = append(faults, fmt.Errorf("%s: %v: want a single value", name, value))
		case nil:
		default:
			values[variable(name)] = fmt.Sprint(value)
		}
	}
	for name, value := range k.Lists {
		list, err := listOf(key(name), value)
		faults = append(faults, err)
		if list != "" {
			values[name] = list
		}
	}
	return values, faults
}

// listOf returns the list of plugins in a value of a key.
func listOf(key string, value any) (string, error) {
	switch list := value.(type) {
	case nil:
		return "", nil
	case string:
		return list, nil
	case []any:
		var entries []string
		for _, entry := range list {
			entries = append(entries, fmt.Sprint(entry))
		}
		return strings.Join(entries, ","), nil
	}
	return "", fmt.Errorf("%s: %v: want a text or a list of texts", key, value)
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
		set(&cfg.PluginConfigs, name, host.PluginConfig{Document: document})
	}
	if p.Env != nil {
		set(&cfg.PluginEnv, name, p.Env)
	}
	processors, err := listOf("plugins."+name+".processors", p.Processors)
	if processors != "" {
		set(&cfg.ExporterProcessors, name, processors)
	}
	switch p.Fail {
	case "":
	case "open", "closed":
		set(&cfg.ProcessorFailOpen, name, p.Fail == "open")
	default:
		err = errors.Join(err, fmt.Errorf("plugins.%s.fail: %q: want open or closed", name, p.Fail))
	}
	return err
}

// set stores a value in a map, which it makes if it is nil.
func set[V any](m *map[string]V, name string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[name] = value
}

// NewHost returns a Host that logs to the Collector's log.
func NewHost(cfg host.Config, log *zap.Logger) (*host.Host, error) {
	return host.New(cfg, host.WithLogger(slog.New(zapslog.NewHandler(log.Core()))))
}

// Send gives a batch to a host. If wait is true, it blocks until each plugin has answered,
// or ctx ends. It returns host.ErrFull if the queue is full, and a permanent error if the
// batch must not be sent again.
func Send(ctx context.Context, h *host.Host, td ptrace.Traces, sender string, wait bool) error {
	request, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		return consumererror.NewPermanent(err)
	}
	var out host.Outcome
	if wait {
		out, err = h.Deliver(ctx, request, sender)
	} else {
		out.Taken, err = h.Consume(request, sender)
	}
	switch {
	case errors.Is(err, host.ErrMalformed), errors.Is(err, host.ErrTooLarge):
		return consumererror.NewPermanent(err)
	case err != nil:
		return err
	case out.Dropped > 0:
		return fmt.Errorf("%d of %d spans were dropped before a plugin delivered them", out.Dropped, out.Spans)
	case out.Rejected > 0:
		return consumererror.NewPermanent(fmt.Errorf("%d of %d spans were rejected by a plugin; the log has the reason", out.Rejected, out.Spans))
	}
	return nil
}
