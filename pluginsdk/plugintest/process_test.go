package plugintest

import (
	"runtime"
	"testing"

	"github.com/servetrace/servetrace/test/testplugin"
)

// A process that the plugin has started ends with the plugin, even outside its group.
func TestDaemonsEndWithThePlugin(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux finds such processes")
	}
	path := testplugin.Install(t, "daemon")
	p, err := Binary(path).start(asHost)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	testplugin.WaitFor(t, "the daemon", func() bool { return len(testplugin.Received(t, path)) > 0 })
	daemon := testplugin.Received(t, path)[0].PID
	p.stop()
	testplugin.WaitFor(t, "the daemon's end", func() bool { return testplugin.Gone(daemon) })
}
