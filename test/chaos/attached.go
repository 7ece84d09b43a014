package main

import (
	"os"
	"os/exec"
	"sync"
	"time"
)

// keeper runs the plugin that hello attaches to, and restarts it whenever it has ended,
// like an init system.
type keeper struct {
	path, socket string
	environ      []string

	stop    chan struct{}
	running sync.WaitGroup
}

// keeperPause is the time between the end of a process and the next start.
const keeperPause = 100 * time.Millisecond

func startKeeper(path, socket string, environ []string) *keeper {
	k := &keeper{path: path, socket: socket, environ: environ, stop: make(chan struct{})}
	k.running.Go(func() {
		for k.once() {
			select {
			case <-time.After(keeperPause):
			case <-k.stop:
			}
		}
	})
	return k
}

// once runs the process until it ends, and reports whether to run it again.
func (k *keeper) once() bool {
	select {
	case <-k.stop:
		return false
	default:
	}
	cmd := exec.Command(k.path, "--listen", k.socket)
	cmd.Env = k.environ
	if cmd.Start() != nil {
		return true // no process is available at the moment
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		_ = cmd.Wait() // the faults kill it
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-k.stop:
	}
	_ = cmd.Process.Signal(os.Interrupt) // fails if it has ended
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill() // fails if it has ended
		<-ended
	}
	return false
}

func (k *keeper) end() {
	close(k.stop)
	k.running.Wait()
}
