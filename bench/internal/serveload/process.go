package serveload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// child is a process that answers a line of JSON for each that it is sent.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
	log *os.File // its standard error
}

// startChild starts one. Stop it.
func startChild(ctx context.Context, env *suite.Env, variables []string, path string, args ...string) (*child, error) {
	c := &child{cmd: env.Command(ctx, path, args...)}
	c.cmd.Env = append(c.cmd.Env, variables...)
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	// A file, so that nobody has to read along while something is measured.
	log, err3 := os.CreateTemp(env.Dir, "log")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	c.in, c.out, c.log, c.cmd.Stderr = in, json.NewDecoder(bufio.NewReader(out)), log, log
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return c, nil
}

// ask sends a line and reads the answer.
func (c *child) ask(question, answer any) error {
	if err := json.NewEncoder(c.in).Encode(question); err != nil {
		return c.explain(err)
	}
	return c.read(answer)
}

func (c *child) read(answer any) error {
	if err := c.out.Decode(answer); err != nil {
		return c.explain(err)
	}
	return nil
}

// stop has the child end, and reads what it says last, if last is not nil.
func (c *child) stop(last any) error {
	err := c.in.Close()
	if last != nil {
		err = errors.Join(err, c.read(last))
	}
	if waited := c.cmd.Wait(); waited != nil {
		err = errors.Join(err, c.explain(waited))
	}
	return errors.Join(err, c.log.Close())
}

// explain adds what the child has said last.
func (c *child) explain(err error) error {
	const most = 1 << 10
	said, _ := os.ReadFile(c.log.Name()) // what cannot be read explains nothing
	said = said[max(0, len(said)-most):]
	return fmt.Errorf("%s: %w: %s", filepath.Base(c.cmd.Path), err, strings.TrimSpace(string(said)))
}

// serverChild is a server process.
type serverChild struct {
	*child
	addr  string
	books books // once it has stopped
}

func startServer(ctx context.Context, env *suite.Env, variables []string, args ...string) (*serverChild, error) {
	c, err := startChild(ctx, env, variables, env.Self, append([]string{"child", RoleServer}, args...)...)
	if err != nil {
		return nil, err
	}
	var at ready
	if err := c.read(&at); err != nil {
		return nil, errors.Join(err, c.stop(nil))
	}
	return &serverChild{child: c, addr: at.Addr}, nil
}

// spent is what a server and its plugins have used: CPU in nanoseconds.
type spent struct{ cpu, plugins, allocs, bytes float64 }

func (s spent) less(before spent) spent {
	return spent{
		cpu: s.cpu - before.cpu, plugins: s.plugins - before.plugins,
		allocs: s.allocs - before.allocs, bytes: s.bytes - before.bytes,
	}
}

// spent returns what the server has used so far.
func (s *serverChild) spent() (spent, error) {
	var u usage
	if err := s.ask(struct{}{}, &u); err != nil {
		return spent{}, err
	}
	now := spent{cpu: float64(u.CPU), plugins: float64(u.Ended), allocs: float64(u.Objects), bytes: float64(u.Bytes)}
	for _, pid := range childrenOf(s.cmd.Process.Pid) {
		// A plugin that has ended by now has hardly lived: it is missing.
		if cpu, err := measure.ProcessCPU(pid); err == nil {
			now.plugins += float64(cpu)
		}
	}
	return now, nil
}

// childrenOf are the processes that a process has started.
func childrenOf(pid int) []int {
	var pids []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
