package testplugin

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// daemon records the id of a grandchild that has left its group and session, as
// a daemon does, and that watches nothing.
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

// spin works on nothing, for ever, beside what it should do.
func spin() {
	go spinForEver()
	exporter(record)
}

// crowd does what it should beside n goroutines that wait.
func crowd(n int) {
	for range n {
		go func() { select {} }()
	}
	exporter(record)
}

// spinForEver is in the stack that a dump shows. The race detector, on whose
// stack it would be invisible, has no part in it.
//
//go:norace
func spinForEver() {
	for n := uint64(1); n != 0; n++ { // some centuries
	}
}

// quitdeaf prints no stacks when it is told to.
func quitdeaf() {
	signal.Ignore(syscall.SIGQUIT)
	exporter(record)
}

// stranger serves as another user, at a socket of its own. Only root can start
// it.
func stranger() {
	must(os.Setenv("PLUGIN_UNIX_SOCKET_DIR", ""))
	must(syscall.Setgroups(nil))
	must(syscall.Setgid(65534))
	must(syscall.Setuid(65534))
	exporter(record)
}
