package plugintest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	goleak.VerifyTestMain(m)
}
