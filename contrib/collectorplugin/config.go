package collectorplugin

import (
	"fmt"
	"reflect"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/servetrace/servetrace/pluginsdk"
)

// configure returns the configuration of the component that f creates: the default of f, with
// the values in the plugin's configuration below the component's type.
func configure(s pluginsdk.Setup, f component.Factory) (component.Config, error) {
	key := f.Type().String()
	values, err := section(s, key)
	if err != nil {
		return nil, err
	}
	cfg := f.CreateDefaultConfig()
	part := confmap.NewFromStringMap(values)
	if err := disableQueue(s, key, cfg, part); err != nil {
		return nil, err
	}
	if err := part.Unmarshal(cfg); err != nil {
		return nil, &pluginsdk.ConfigError{Path: key, Err: err}
	}
	if err := confmap.Validate(cfg); err != nil {
		return nil, &pluginsdk.ConfigError{Path: key, Err: err}
	}
	return cfg, nil
}

// section returns the mapping below a key of the plugin's configuration. It decodes into a
// struct type with a field for this key alone. The SDK notes which keys any of these types
// has, and reports the other keys as errors.
func section(s pluginsdk.Setup, key string) (map[string]any, error) {
	target := reflect.New(reflect.StructOf([]reflect.StructField{{
		Name: "Section", Type: reflect.TypeFor[map[string]any](), Tag: reflect.StructTag(fmt.Sprintf("yaml:%q", key)),
	}}))
	if err := s.DecodeConfig(target.Interface()); err != nil {
		return nil, err
	}
	return target.Elem().Field(0).Interface().(map[string]any), nil
}

// disableQueue disables an exporter's own queue and retries in its configuration part, unless
// part enables them explicitly. If neither part nor the exporter's default cfg has a
// key, disableQueue does not add it, because the exporter does not know it.
func disableQueue(s pluginsdk.Setup, key string, cfg component.Config, part *confmap.Conf) error {
	defaults := confmap.New()
	if err := defaults.Marshal(cfg); err != nil {
		return fmt.Errorf("read the defaults of %s: %w", key, err)
	}
	for _, name := range []string{"sending_queue", "retry_on_failure"} {
		enabled := part.Get(name + confmap.KeyDelimiter + "enabled")
		switch {
		case enabled == true:
			s.Warn(key+"."+name+".enabled", "spans in the exporter's own queue count as delivered, and are lost if the plugin is killed")
		case enabled != nil: // the value is false, or it is no bool, and Unmarshal returns an error
		case part.IsSet(name) || defaults.Get(name) != nil:
			off := confmap.NewFromStringMap(map[string]any{name: map[string]any{"enabled": false}})
			if err := part.Merge(off); err != nil {
				return &pluginsdk.ConfigError{Path: key + "." + name, Err: err}
			}
		}
	}
	return nil
}
