// Package hosting has the parts that the exporter and the processor of this module share. It
// makes the configuration of a host.Host from keys of the Collector's file, gives batches of
// the Collector to the Host, and adds the Host's accounting to the Collector's metrics.
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

// Keys are the keys that configure the host in a component's part of the Collector's file.
// They are the keys of tracing_config in the service file of servetrace.
type Keys struct {
	// Lists are the lists of plugins by their variables, such as
	// SERVE_TRACING_EXPORTER_PLUGIN. A list is a text with commas, or a list of texts. If it is
	// nil, the variable in the environment counts.
	Lists map[string]any
	// Plugins has the settings of single plugins, by the plugin's name in a list.
	Plugins map[string]Plugin
	// Settings are the other settings of the host. For example, "max_age" replaces the variable
	// SERVE_TRACING_MAX_AGE.
	Settings map[string]any
	// Own names the keys of the component that are not in Settings, for an error message.
	Own string
}

// Plugin has the settings of one plugin.
type Plugin struct {
	// Config is the configuration that the plugin itself reads.
	Config map[string]any `mapstructure:"config"`
	// Env names variables of the Collector's environment that the plugin gets, besides the
	// variables that it declares. A name may be a prefix with a star, such as "AWS_*".
	Env []string `mapstructure:"env"`
	// Processors is the list of processor plugins that run before this exporter plugin only: a
	// text with commas, or a list of texts.
	Processors any `mapstructure:"processors"`
	// Fail is for a processor plugin: "open" lets spans pass unprocessed while the plugin
	// fails, and "closed", the default, does not.
	Fail string `mapstructure:"fail"`
}

// defaultWatch is the default interval at which the host looks for changed plugin files. SIGHUP
// cannot reload the plugins here, because the Collector reloads its own file at this signal.
const defaultWatch = "5s"

// Config returns the configuration of the host. getenv returns a variable of the environment.
// The error joins all faults.
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
		if _, own := k.Lists[name]; !read[name] || own && twice { // the host has no such setting, or the key is one of Lists
			faults = append(faults, fmt.Errorf("%s: unknown key: want %s, plugins, or a setting of the host such as max_age", key(name), k.Own))
		}
	}
	for name, plugin := range k.Plugins {
		faults = append(faults, plugin.apply(name, &cfg))
	}
	return cfg, errors.Join(faults...)
}

// variables returns the settings and the lists as variables of the host, by name.
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

// listOf returns a list of plugins, with commas, from the value of a key in the Collector's
// file. The value nil is an empty list.
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

// prefix begins the names of the host's variables. The keys in the Collector's file lack it.
const prefix = "SERVE_TRACING_"

func variable(key string) string { return prefix + strings.ToUpper(key) }
func key(variable string) string { return strings.ToLower(strings.TrimPrefix(variable, prefix)) }

// apply adds the settings of the plugin with this name to cfg.
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

// set stores a value in a map. If the map is nil, set makes it.
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

// Send gives a batch to a host. If wait is true, it blocks until each plugin has answered, or
// ctx ends. It returns host.ErrFull if the host's queue is full. If the batch must not be sent
// again, it returns a permanent error of the Collector. sender names the component.
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
