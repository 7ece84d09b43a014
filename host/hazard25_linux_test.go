package host_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/test/testplugin"
)

// A plugin that gets no more memory ends like any other that crashes: the next
// process, which has no such limit, delivers.
func TestHazard25MemoryLimit(t *testing.T) {
	path := installOwn(t, "hungry")
	r := startHost(t, nil, path)
	r.waitReady(0)
	pid := r.Stats().Exporters[0].PID
	var now unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, nil, &now); err != nil {
		t.Fatal(err)
	}
	now.Cur = 64 << 20 // less than it has: whatever it asks for is refused
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, &now, nil); err != nil {
		t.Fatal(err)
	}
	r.spans("s", 10)
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 10})
	if x := r.Stats().Exporters[0]; x.Crashes != 1 || x.PID == pid {
		t.Errorf("%d crashes, process %d after %d; want one crash and another process", x.Crashes, x.PID, pid)
	}
	if !strings.Contains(r.log.String(), "plugin has crashed") {
		t.Error("the log does not say it")
	}
	if !testplugin.Gone(pid) {
		t.Errorf("process %d is left", pid)
	}
}
