// Package child runs this program again as a child process, in another role, and
// exchanges lines of JSON with it.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// argument is the first argument of a child. Its role is the second.
const argument = "child"

// Role is the main function of a child. The context ends with SIGINT and SIGTERM.
type Role func(ctx context.Context, args []string, in io.Reader, out io.Writer) error

// Main runs a role and exits, if this process is a child. Otherwise it returns.
func Main(roles ...map[string]Role) {
	if len(os.Args) < 3 || os.Args[1] != argument {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := fmt.Errorf("no role %q", os.Args[2])
	for _, set := range roles {
		if role := set[os.Args[2]]; role != nil {
			err = role(ctx, os.Args[3:], os.Stdin, os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the process ends
	}
	os.Exit(0)
}

// Command prepares a child in a process group of its own. It gets SIGTERM when ctx
// ends, SIGKILL five seconds later, and SIGKILL when this process dies.
func Command(ctx context.Context, role string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{argument, role}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd, nil
}

// Child is a child process that writes a line of JSON for each line that it reads.
type Child struct {
	PID  int
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  *os.File // its standard error
}

// Start starts a child with more environment variables. The caller must stop it.
func Start(ctx context.Context, variables []string, role string, args ...string) (*Child, error) {
	cmd, err := Command(ctx, role, args...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Environ(), variables...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	// A file, so that this process need not read during a measurement.
	log, err3 := os.CreateTemp("", "log")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	cmd.Stderr = log
	if err := errors.Join(os.Remove(log.Name()), cmd.Start()); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", role, err), log.Close())
	}
	return &Child{PID: cmd.Process.Pid, role: role, cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out)), log: log}, nil
}

// Ask sends a line, and reads the answer.
func (c *Child) Ask(question, answer any) error {
	if err := json.NewEncoder(c.in).Encode(question); err != nil {
		return fmt.Errorf("ask %s: %w", c.role, err)
	}
	return c.Read(answer)
}

// Read reads a line.
func (c *Child) Read(answer any) error {
	if err := c.out.Decode(answer); err != nil {
		return fmt.Errorf("read from %s: %w", c.role, err)
	}
	return nil
}

// Stop closes the child's standard input, reads its last line unless last is nil,
// and waits for its end. The error contains the end of the child's standard error.
func (c *Child) Stop(last any) error {
	err := c.in.Close()
	if last != nil {
		err = errors.Join(err, c.Read(last))
	}
	if waited := c.cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w: %s", c.role, waited, c.lastLog()))
	}
	return errors.Join(err, c.log.Close())
}

// lastLog returns the last KiB of the child's standard error.
func (c *Child) lastLog() string {
	const most = 1 << 10
	info, err := c.log.Stat()
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(io.NewSectionReader(c.log, max(0, info.Size()-most), most))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
