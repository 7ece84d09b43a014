// Package child starts child processes: other programs, and this program in another
// role, with which it exchanges lines of JSON.
package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// argument is the first argument of this program in a role. The role is the second.
const argument = "child"

// Role is the main function of a child, which ends with in.
type Role func(args []string, in io.Reader, out io.Writer) error

// Main runs a role and exits, if this process is a child. Otherwise it returns.
func Main(roles ...map[string]Role) {
	if len(os.Args) < 3 || os.Args[1] != argument {
		return
	}
	err := fmt.Errorf("no role %q", os.Args[2])
	for _, set := range roles {
		if role := set[os.Args[2]]; role != nil {
			err = role(os.Args[3:], os.Stdin, os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Answer writes first, and an answer to each question of in, until in ends.
func Answer[Question any](in io.Reader, out io.Writer, first any, answer func(Question) (any, error)) error {
	questions, answers := json.NewDecoder(in), json.NewEncoder(out)
	err := answers.Encode(first)
	for err == nil {
		var q Question
		if err = questions.Decode(&q); err != nil {
			break
		}
		var a any
		if a, err = answer(q); err == nil {
			err = answers.Encode(a)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Child is a child process.
type Child struct {
	PID  int
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  *os.File // its standard error
}

// Start starts this program in a role.
func Start(ctx context.Context, variables []string, role string, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return StartProgram(ctx, variables, self, append([]string{argument, role}, args...)...)
}

// StartProgram starts a program with more environment variables. The caller must stop
// it. It is killed when ctx ends, and when this process dies.
func StartProgram(ctx context.Context, variables []string, path string, args ...string) (*Child, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), log.Close())
	}
	return &Child{PID: cmd.Process.Pid, name: strings.Join(append([]string{filepath.Base(path)}, args...), " "), cmd: cmd, in: in, out: json.NewDecoder(out), log: log}, nil
}

// Ask sends a line, and reads the answer.
func (c *Child) Ask(question, answer any) error {
	if err := json.NewEncoder(c.in).Encode(question); err != nil {
		return fmt.Errorf("ask %s: %w", c.name, err)
	}
	return c.Read(answer)
}

// Read reads a line.
func (c *Child) Read(answer any) error {
	if err := c.out.Decode(answer); err != nil {
		return fmt.Errorf("read from %s: %w", c.name, err)
	}
	return nil
}

// Stop closes the child's standard input, reads its last line unless last is nil,
// and waits for its end. The error contains the child's standard error.
func (c *Child) Stop(last any) error {
	err := c.in.Close()
	if last != nil {
		err = errors.Join(err, c.Read(last))
	}
	return errors.Join(err, c.wait())
}

// Terminate ends another program with SIGTERM, and waits for its end.
func (c *Child) Terminate() error {
	return errors.Join(c.cmd.Process.Signal(syscall.SIGTERM), c.wait())
}

// mostLog bounds the part of the child's log in an error.
const mostLog = 4 << 10

func (c *Child) wait() error {
	err := c.cmd.Wait()
	if err != nil {
		text := make([]byte, mostLog)
		n, _ := c.log.ReadAt(text, 0) // EOF if there is less
		err = fmt.Errorf("%s: %w: %s", c.name, err, strings.TrimSpace(string(text[:n])))
	}
	return errors.Join(err, c.log.Close())
}
