package plugintest_test

import (
	"context"
	"fmt"
	"os"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// A command that tests a plugin and prints the report. Tests call Conformance instead.
// This example selects one rule, and the rule that it builds upon.
func ExampleCheck() {
	spec := pluginsdk.Spec{
		Name: "nowhere",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
		},
	}
	report, err := plugintest.Check(context.Background(), plugintest.InProcess(spec),
		plugintest.WithRules("handshake.version"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := report.WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// pass  handshake.line     The first line on standard output is the handshake, 1|1|unix|PATH|grpc
	// pass  handshake.version  The handshake names go-plugin's core protocol 1 and protocol version 1
	//
	// nowhere: 2 passed, 0 failed, 0 skipped
}
