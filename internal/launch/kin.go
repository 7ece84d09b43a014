package launch

import (
	"context"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/proctree"
	"github.com/servetrace/servetrace/internal/wire"
)

// kinGrace is how long processes that left a plugin's group may take to end
// when they are killed, and the search for them.
const kinGrace = 500 * time.Millisecond

// endKin kills what the ended process has started and what has left its group
// since, and collects what has fallen to this process. It blocks for a little
// more than kinGrace at most: reading another process's environment may take as
// long as the kernel likes, and is then left behind.
func (p *process) endKin() {
	ctx, cancel := context.WithTimeout(context.Background(), kinGrace)
	ended := make(chan struct{})
	go func() { // ends with the search
		defer close(ended)
		defer cancel()
		killed, err := proctree.Kill(ctx, markOf(p.folder.path))
		if killed > 0 || err != nil {
			p.cmd.Log.Info("processes that the plugin had started outlived it and were killed", "processes", killed, "error", err)
		}
		proctree.Reap(ctx, p.pid())
	}()
	select {
	case <-ended:
	case <-time.After(kinGrace + kinGrace/2):
	}
}

// markOf finds the processes of a plugin with one of these private folders:
// go-plugin names a folder in it to the plugin.
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
