package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestDoctorFindsANoexecMount: an executable on a file system that is mounted noexec cannot
// run. The file system is in a mount namespace of the shell.
func TestDoctorFindsANoexecMount(t *testing.T) {
	attributes := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	trial := exec.Command("mount", "-t", "tmpfs", "-o", "noexec", "none", t.TempDir())
	trial.SysProcAttr = attributes
	if out, err := trial.CombinedOutput(); err != nil {
		t.Skipf("needs root, to mount a file system: %v\n%s", err, out)
	}
	s := newSetUp(t, "echo")
	if err := os.Mkdir(s.path("noexec"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.env[envPlugins] = "echo=./noexec/echo"
	s.attributes = attributes
	got, code := s.doctor(t, "mount -t tmpfs -o noexec none noexec\ncp -L plugins/echo noexec/echo\n")
	first := got.first()
	if want := "mounted noexec"; code != exitNo || first.Check != "file" || !strings.Contains(first.Text, want) || first.Next == "" {
		t.Errorf("exit code %d, the first error is %+v, want %s", code, first, want)
	}
}
