package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// envPlace has the task and the folder of a child of TestWhyAFileIsNotExecutable.
const envPlace = "SERVETRACE_TEST_PLACE"

// otherUser is not root, and owns nothing.
const otherUser = 65534

// TestWhyAFileIsNotExecutable: the mode lets its owner execute the file, and
// something else forbids it. The child has a mount namespace of its own.
func TestWhyAFileIsNotExecutable(t *testing.T) {
	if place := os.Getenv(envPlace); place != "" {
		lookFrom(t, place)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can mount, and become another user")
	}
	for name, want := range map[string]string{
		"noexec": "its file system is mounted noexec, so that nothing on it can be executed; put the plugin on another file system, or remount that one with exec (see: findmnt -T PATH)",
		"user": fmt.Sprintf("the file is not executable by user %d of this process (mode 0700, of user 0 and group 0); "+
			"have its owner run: chmod a+x PATH, or put a copy that this user owns in another place", otherUser),
	} {
		t.Run(name, func(t *testing.T) {
			place, err := os.MkdirTemp("", name) // t.TempDir lies in a folder that is closed to others
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(place) })
			if err := os.Chmod(place, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestWhyAFileIsNotExecutable$", "-test.v")
			cmd.Env = append(os.Environ(), envPlace+"="+name+":"+place)
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			switch {
			case cmd.ProcessState == nil:
				t.Skipf("no mount namespace here: %v", err)
			case strings.Contains(string(out), "--- SKIP"):
				t.Skipf("%s", out)
			}
			path := filepath.Join(place, "plugin")
			if got, want := string(out), "start PATH: "+want+"\n"; err != nil || !strings.Contains(strings.ReplaceAll(got, path, "PATH"), want) {
				t.Errorf("%v, Check says\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}

// lookFrom is the child. It prints the error of Check for a plugin of mode 0700.
func lookFrom(t *testing.T, what string) {
	kind, place, _ := strings.Cut(what, ":")
	if kind == "noexec" {
		if err := unix.Mount("none", place, "tmpfs", unix.MS_NOEXEC, "mode=755"); err != nil {
			t.Skipf("mount: %v", err)
		}
	}
	path := filepath.Join(place, "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if kind == "user" {
		if err := syscall.Setreuid(otherUser, otherUser); err != nil {
			t.Skipf("become another user: %v", err)
		}
	}
	err := Check(path, Trust{})
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason != ReasonNotExecutable {
		t.Errorf("Check = %#v, want ReasonNotExecutable", err)
	}
	fmt.Println(err)
}
