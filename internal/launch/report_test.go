package launch

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReportSaysOnlyWhatIsKnown(t *testing.T) {
	const core = 0x80 // the bit of a wait status
	for _, test := range []struct {
		name   string
		status syscall.WaitStatus
		why    string
		oom    oomKills
		want   Report
	}{
		{"exit", 3 << 8, "", oomNone, Report{Exit: "exit status 3"}},
		{"exit after a child was killed", 0, "", oomCounted,
			Report{Exit: "exit status 0 (the kernel has counted an OOM kill in its cgroup: perhaps of a child process)", OOM: true}},
		{"exit before a kill", 0, "it did not answer", oomNone, Report{Exit: "exit status 0"}},
		{"signal", 11 | core, "", oomCounted,
			Report{Exit: "signal: segmentation fault (core dumped)", Signal: "SIGSEGV", CoreDumped: true}},
		{"killed here", 9, "it did not answer", oomCounted,
			Report{Exit: "signal: killed (by this host: it did not answer)", Signal: "SIGKILL", Killed: "it did not answer"}},
		{"out of memory", 9, "", oomCounted,
			Report{Exit: "signal: killed (out of memory: the kernel has counted an OOM kill in its cgroup)", Signal: "SIGKILL", OOM: true}},
		{"killed by another", 9, "", oomNone,
			Report{Exit: "signal: killed (not by this host, and the kernel has counted no OOM kill in its cgroup)", Signal: "SIGKILL"}},
		{"killed, who knows", 9, "", oomUnknown,
			Report{Exit: "signal: killed (not by this host; it may have been out of memory: look into the kernel's log)", Signal: "SIGKILL"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Report{}.withEnd(test.status, test.why, test.oom)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("classify (-want +got):\n%s", diff)
			}
		})
	}
}
