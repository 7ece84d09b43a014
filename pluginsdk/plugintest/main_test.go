package plugintest_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/test/testplugin"
)

// suiteOver is a variable with the path of a plugin. If it is set, this test binary runs
// the suite over the plugin, for a test that kills the suite.
const suiteOver = "PLUGINTEST_SUITE_OVER"

func TestMain(m *testing.M) {
	testplugin.Main()
	if path := os.Getenv(suiteOver); path != "" {
		_, _ = plugintest.Check(context.Background(), plugintest.Binary(path), plugintest.WithRules("end.sigterm"))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
