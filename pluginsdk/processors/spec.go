package processors

import (
	"context"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Spec declares the processor plugin "processors". It runs the processors in its
// configuration before all exporters. Its executable is in plugins/processors.
var Spec = pluginsdk.Spec{
	Name:        "processors",
	Description: "filters, samples, edits and redacts spans before all exporters, as configured",
	Env:         []string{EnvRayContext},
	Processors:  []pluginsdk.NewProcessor{configuredOnly},
}

// configuredOnly is Configured, but warns the operator if the configuration lists no
// processor, because this plugin then does nothing.
func configuredOnly(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	processor, err := Configured(ctx, s)
	if chain, ok := processor.(pluginsdk.Chain); ok && len(chain) == 0 {
		s.Warn("processors", "the list is empty, so spans pass unchanged: list processors in the plugin's configuration")
	}
	return processor, err
}
