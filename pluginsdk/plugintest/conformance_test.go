package plugintest_test

import (
	"testing"

	"github.com/servetrace/servetrace/internal/testplugin"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// quick are what every process of this test binary gets: a place for coverage,
// and no pause at the end under the race detector.
func quick(tb testing.TB) []string {
	tb.Helper()
	return []string{"GOCOVERDIR=" + tb.TempDir(), "GORACE=atexit_sleep_ms=0"}
}

func TestRecordConforms(t *testing.T) {
	plugintest.Conformance(t, plugintest.Binary(testplugin.Install(t, "record"), quick(t)...))
}

func TestStockConforms(t *testing.T) {
	plugintest.Conformance(t, plugintest.Binary(testplugin.Install(t, "stock"), quick(t)...))
}
