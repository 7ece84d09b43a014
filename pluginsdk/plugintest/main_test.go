package plugintest_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/test/testplugin"
)

// suiteOver has this test binary be the suite over one plugin, for a test that
// kills it.
const suiteOver = "PLUGINTEST_SUITE_OVER"

func TestMain(m *testing.M) {
	testplugin.Main()
	if path := os.Getenv(suiteOver); path != "" {
		_, _ = plugintest.Check(context.Background(), plugintest.Binary(path), plugintest.WithRules("end.sigterm"))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
