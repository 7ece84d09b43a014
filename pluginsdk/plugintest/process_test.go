package plugintest

import (
	"runtime"
	"testing"

	"github.com/servetrace/servetrace/test/testplugin"
)

// What a plugin has started and what has left its group ends with it.
func TestDaemonsEndWithThePlugin(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux finds them")
	}
	path := testplugin.Install(t, "daemon")
	c, err := startChild(Binary(path), how{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	testplugin.WaitFor(t, "the daemon", func() bool { return len(testplugin.Received(t, path)) > 0 })
	daemon := testplugin.Received(t, path)[0].PID
	c.stop()
	testplugin.WaitFor(t, "the daemon's end", func() bool { return testplugin.Gone(daemon) })
}
