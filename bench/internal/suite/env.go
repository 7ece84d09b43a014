package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
)

// Env is what a case is given.
type Env struct {
	// Self is this program's executable, and Bin the folder with the others that
	// rows need: plugins, servers.
	Self, Bin string
	// Dir is a folder for this run of the case, gone afterwards. Its path is short
	// enough for sockets in it.
	Dir string
	// Sink is the one process that takes what all rows send.
	Sink *sink.Sink
	// Profiles is a folder for profiles of the processes that are measured; empty:
	// none are taken.
	Profiles string
	// Log is told what is worth it.
	Log *slog.Logger
}

// forCase gives an Env with a folder of its own.
func (e *Env) forCase() (*Env, func(), error) {
	dir, err := os.MkdirTemp(e.Dir, "c")
	if err != nil {
		return nil, nil, err
	}
	env := *e
	env.Dir = dir
	return &env, func() { _ = os.RemoveAll(dir) }, nil
}

// Profile is what the files of a case's profiles begin with; empty: none are
// taken. Of several repeats the last one's stay.
func (e *Env) Profile(suite, shape, row string) string {
	if e.Profiles == "" {
		return ""
	}
	return filepath.Join(e.Profiles, measure.ProfileName(suite, shape, row))
}

// Command prepares a process of this run: a group of its own, which is asked to
// end (SIGTERM) when ctx ends, and killed if it has not after five seconds. It
// is killed when this program dies. Standard error goes to this program's; TMPDIR
// is e.Dir.
func (e *Env) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+e.Dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Child runs this program again in a role ("spanpath"), gives it order as JSON
// on standard input and reads what it answers as JSON on standard output.
func (e *Env) Child(ctx context.Context, role string, order, answer any) error {
	in, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("order of child %q: %w", role, err)
	}
	cmd := e.Command(ctx, e.Self, "child", role)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("child %q: %w: %s", role, err, lastLines(said.String()))
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("answer of child %q: %w", role, err)
	}
	return nil
}

// lastLines are the last of what a child has said on standard error, where it
// tells why it failed.
func lastLines(said string) string {
	const most = 5
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
