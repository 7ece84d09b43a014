package main

import (
	"os"
	"os/exec"
	"sync"
	"time"
)

// keeper runs the plugin that hello attaches to, and starts it again whenever
// it has ended, as an operator's init system does.
type keeper struct {
	path, socket string
	environ      []string

	stop    chan struct{}
	running sync.WaitGroup
}

// keeperPause is between the end of the process and the next.
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

// once runs the process to its end, and tells whether to do it again.
func (k *keeper) once() bool {
	select {
	case <-k.stop:
		return false
	default:
	}
	cmd := exec.Command(k.path, "--listen", k.socket)
	cmd.Env = k.environ
	if cmd.Start() != nil {
		return true // no process to be had at the moment
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		_ = cmd.Wait() // it is killed all the time
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-k.stop:
	}
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill() // likewise
		<-ended
	}
	return false
}

func (k *keeper) end() {
	close(k.stop)
	k.running.Wait()
}
