package serveload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
)

// serverChild is a server process.
type serverChild struct {
	*child.Child
	addr    string
	account account // after its stop
}

func startServer(ctx context.Context, variables []string, args ...string) (*serverChild, error) {
	c, err := child.Start(ctx, variables, roleServer, args...)
	if err != nil {
		return nil, err
	}
	var at ready
	if err := c.Read(&at); err != nil {
		return nil, errors.Join(err, c.Stop(nil))
	}
	return &serverChild{Child: c, addr: at.Addr}, nil
}

// spent is the usage of a server and its plugins, with CPU time in nanoseconds.
type spent struct{ cpu, plugins, allocs, bytes float64 }

func (s spent) sub(before spent) spent {
	return spent{
		cpu: s.cpu - before.cpu, plugins: s.plugins - before.plugins,
		allocs: s.allocs - before.allocs, bytes: s.bytes - before.bytes,
	}
}

// spent returns the usage so far.
func (s *serverChild) spent() (spent, error) {
	var u usage
	if err := s.Ask(struct{}{}, &u); err != nil {
		return spent{}, err
	}
	now := spent{cpu: float64(u.CPU), plugins: float64(u.Ended), allocs: float64(u.Objects), bytes: float64(u.Bytes)}
	for _, pid := range childrenOf(s.PID) {
		// A plugin that ends just now has hardly lived. Its time is missing.
		if cpu, err := measure.ProcessCPU(pid); err == nil {
			now.plugins += float64(cpu)
		}
	}
	return now, nil
}

// childrenOf returns the child processes of a process.
func childrenOf(pid int) []int {
	var pids []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, list := range lists {
		text, _ := os.ReadFile(list) // fails if the thread has ended
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
