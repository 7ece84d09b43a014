package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestDoctorFindsANoexecMount: an executable on a file system that is mounted noexec cannot
// run. The file system is in a mount namespace of the shell.
func TestDoctorFindsANoexecMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	s := newSetUp(t, "echo")
	if err := os.Mkdir(s.path("noexec"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.env[envPlugins] = "echo=./noexec/echo"
	s.attributes = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	got, code := s.doctor(t, "mount -t tmpfs -o noexec none noexec || exit 77\ncp -L plugins/echo noexec/echo\n")
	if code == 77 {
		t.Skip("no file system can be mounted here")
	}
	first := got.first()
	if want := "mounted noexec"; code != exitNo || first.Check != "file" || !strings.Contains(first.Text, want) || first.Next == "" {
		t.Errorf("exit code %d, the first error is %+v, want %s", code, first, want)
	}
}
