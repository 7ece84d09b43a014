package proctree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/proctree"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sleeper starts a process with an environment that no other run of this test has.
func sleeper(t *testing.T, environ ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.Env = environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have gone
		_ = cmd.Wait()
	})
	return cmd
}

// unique is a value that no other process has.
func unique(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("/%s/%d", t.Name(), os.Getpid())
}

func TestKill(t *testing.T) {
	value := unique(t)
	mark := proctree.Mark{Variable: "PROCTREE_TEST", Is: func(v string) bool { return v == value }}
	var marked, others []*exec.Cmd
	for _, environ := range [][]string{
		{"PROCTREE_TEST=" + value},
		{"A=b", "PROCTREE_TEST=" + value, "C=d"},
		{"LONG=" + strings.Repeat("x", 100<<10), "PROCTREE_TEST=" + value}, // longer than one read
	} {
		marked = append(marked, sleeper(t, environ...))
	}
	for _, environ := range [][]string{
		{"PROCTREE_TEST=" + value + "0"},
		{"PROCTREE_TEST_2=" + value},
		{"OTHER=PROCTREE_TEST=" + value},
		{},
	} {
		others = append(others, sleeper(t, environ...))
	}
	killed, err := proctree.Kill(t.Context(), mark)
	if err != nil || killed != len(marked) {
		t.Errorf("killed %d, %v; want %d", killed, err, len(marked))
	}
	for i, cmd := range marked {
		if !testplugin.Gone(cmd.Process.Pid) {
			t.Errorf("marked process %d is there", i)
		}
	}
	for i, cmd := range others {
		if testplugin.Gone(cmd.Process.Pid) {
			t.Errorf("other process %d has gone", i)
		}
	}
	if killed, err := proctree.Kill(t.Context(), mark); err != nil || killed != 0 {
		t.Errorf("killed %d, %v the second time", killed, err)
	}
}

// This process has the mark itself, as a plugin has the mark of its children.
func TestKillSparesTheCaller(t *testing.T) {
	mark := proctree.Mark{Variable: "PATH", Is: func(string) bool { return false }}
	if killed, err := proctree.Kill(t.Context(), mark); err != nil || killed != 0 {
		t.Errorf("killed %d, %v", killed, err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestSelf$")
	cmd.Env = append(os.Environ(), envSelf+"="+unique(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("a process that kills its mark: %v\n%s", err, out)
	}
}

const envSelf = "PROCTREE_TEST_SELF"

// TestSelf runs in the process of TestKillSparesTheCaller.
func TestSelf(t *testing.T) {
	value := os.Getenv(envSelf)
	if value == "" {
		t.Skip("for TestKillSparesTheCaller")
	}
	child := sleeper(t, envSelf+"="+value)
	killed, err := proctree.Kill(t.Context(), proctree.Mark{Variable: envSelf, Is: func(v string) bool { return v == value }})
	if err != nil || killed != 1 || !testplugin.Gone(child.Process.Pid) {
		t.Errorf("killed %d, %v; want the child", killed, err)
	}
}

func TestAwait(t *testing.T) {
	value := unique(t)
	mark := proctree.Mark{Variable: "PROCTREE_TEST", Is: func(v string) bool { return v == value }}
	if err := proctree.Await(t.Context(), mark); err != nil {
		t.Errorf("Await of nothing: %v", err)
	}
	cmd := sleeper(t, "PROCTREE_TEST="+value)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	want := fmt.Sprintf("process %d has not ended: context deadline exceeded", cmd.Process.Pid)
	if err := proctree.Await(ctx, mark); !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
		t.Errorf("Await = %v, want %s", err, want)
	}
	if testplugin.Gone(cmd.Process.Pid) {
		t.Error("Await has killed it")
	}
	ended := make(chan error, 1)
	go func() { ended <- proctree.Await(t.Context(), mark) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Await of one that was killed: %v", err)
	}
}

// BenchmarkKill is one look at all processes of this machine.
func BenchmarkKill(b *testing.B) {
	mark := proctree.Mark{Variable: "PROCTREE_TEST", Is: func(string) bool { return false }}
	for b.Loop() {
		if _, err := proctree.Kill(b.Context(), mark); err != nil {
			b.Fatal(err)
		}
	}
}
