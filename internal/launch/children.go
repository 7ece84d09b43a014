package launch

import (
	"context"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/proctree"
	"github.com/servetrace/servetrace/internal/wire"
)

// descendantsGrace bounds the time to find the processes that have left a plugin's process
// group, and to kill them.
const descendantsGrace = 500 * time.Millisecond

// killDescendants kills the descendants of the ended plugin process pid that have left its
// process group. It finds them by the folder in their environment. If killed is not nil, it
// calls killed with their number. It also reaps descendants that have become children of
// this process. It blocks for at most one and a half times descendantsGrace. If the kernel
// delays the read of an environment for longer, the search goes on in the background.
func killDescendants(folder string, pid int, killed func(descendants int, err error)) {
	ctx, cancel := context.WithTimeout(context.Background(), descendantsGrace)
	ended := make(chan struct{})
	go func() { // ends when the search has ended
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

// markOf returns the mark that identifies the processes of the plugins with these private
// folders: the value of wire.EnvSocketDir is such a folder, or a folder inside it.
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
