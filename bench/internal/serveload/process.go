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
	s := &serverChild{Child: c}
	if err := c.Read(&s.addr); err != nil {
		return nil, errors.Join(err, c.Stop(nil))
	}
	return s, nil
}

// usage returns the usage so far, with the living plugins.
func (s *serverChild) usage() (usage, error) {
	var u usage
	if err := s.Ask(struct{}{}, &u); err != nil {
		return u, err
	}
	for _, pid := range childrenOf(s.PID) {
		// A plugin that ends just now has hardly lived. Its time is missing.
		if cpu, err := measure.ProcessCPU(pid); err == nil {
			u.Plugins += float64(cpu)
		}
	}
	return u, nil
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
