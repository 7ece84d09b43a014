package launch

import (
	"context"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/proctree"
	"github.com/servetrace/servetrace/internal/wire"
)

// descendantsGrace bounds the search for processes that left a plugin's group, and
// their end by SIGKILL.
const descendantsGrace = 500 * time.Millisecond

// killDescendants kills the processes that the ended process pid has started with the
// folder in their environment and that have left its group, and reaps descendants that
// have become children of this process. It calls killed, if not nil, with their number. It
// blocks for at most one and a half times descendantsGrace. If the kernel delays the read
// of a process's environment for longer, killDescendants returns and the search continues.
func killDescendants(folder string, pid int, killed func(descendants int, err error)) {
	ctx, cancel := context.WithTimeout(context.Background(), descendantsGrace)
	ended := make(chan struct{})
	go func() { // ends with the search
		defer close(ended)
		defer cancel()
		n, err := proctree.Kill(ctx, markOf(folder))
		if killed != nil {
			killed(n, err)
		}
		proctree.Reap(ctx, pid)
	}()
	select {
	case <-ended:
	case <-time.After(descendantsGrace + descendantsGrace/2):
	}
}

// markOf returns the mark of the processes of a plugin with one of these private folders.
// The value of the variable is a folder inside the private folder.
func markOf(folders ...string) proctree.Mark {
	return proctree.Mark{Variable: wire.EnvSocketDir, Is: func(value string) bool {
		for _, folder := range folders {
			if rest, ok := strings.CutPrefix(value, folder); ok && (rest == "" || rest[0] == '/') {
				return true
			}
		}
		return false
	}}
}
