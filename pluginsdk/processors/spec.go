package processors

import (
	"context"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Spec declares the plugin "processors". It runs the processors of its configuration
// before all exporters. Its executable is in plugins/processors.
var Spec = pluginsdk.Spec{
	Name:        "processors",
	Description: "filters, samples, edits and redacts spans before all exporters, as configured",
	Env:         []string{EnvRayContext},
	Processors:  []pluginsdk.NewProcessor{configuredOnly},
}

// configuredOnly is Configured, with a warning if it constructs no processor, because
// the plugin has no other use.
func configuredOnly(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	processor, err := Configured(ctx, s)
	if chain, ok := processor.(pluginsdk.Chain); ok && len(chain) == 0 {
		s.Warn("processors", "the list is empty, so spans pass unchanged: list processors in the plugin's configuration")
	}
	return processor, err
}
