// Command crashing is a plugin that crashes at its first spans after each start.
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
