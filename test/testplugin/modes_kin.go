package testplugin

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// daemon starts a grandchild that leaves its group and session, like a daemon, and
// records its id.
func daemon() {
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		say(os.Stderr, err.Error()+"\n")
		os.Exit(4)
	}
	if err := appendRecord(Batch{ID: "grandchild", PID: cmd.Process.Pid}); err != nil {
		os.Exit(4)
	}
	exporter(record)
}

// spin uses a CPU forever, beside its proper work.
func spin() {
	go spinForEver()
	exporter(record)
}

// crowd does its proper work beside n waiting goroutines.
func crowd(n int) {
	for range n {
		go func() { select {} }()
	}
	exporter(record)
}

// spinForEver is in the stack dump that a test checks. The race detector is disabled,
// because its stack would hide the function.
//
//go:norace
func spinForEver() {
	for n := uint64(1); n != 0; n++ { // some centuries
	}
}

// quitdeaf ignores SIGQUIT, so it prints no stacks.
func quitdeaf() {
	signal.Ignore(syscall.SIGQUIT)
	exporter(record)
}

// stranger serves as another user, at its own socket. Only root can start it.
func stranger() {
	must(os.Setenv("PLUGIN_UNIX_SOCKET_DIR", ""))
	must(syscall.Setgroups(nil))
	must(syscall.Setgid(65534))
	must(syscall.Setuid(65534))
	exporter(record)
}
