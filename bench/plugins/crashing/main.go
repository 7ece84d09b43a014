// Command crashing is a plugin that starts and crashes at its first spans, again
// and again. It is for benchmarks of what its host does meanwhile.
package main

import (
	"context"
	"os"

	"github.com/servetrace/servetrace/pluginsdk"
)

func main() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "crashing",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error {
				os.Exit(3)
				return nil
			}), nil
		},
	})
}
