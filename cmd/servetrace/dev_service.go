package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
)

// devService is the program that "plugin dev" starts as a service. It also waits for the
// goroutines of the loop.
type devService struct {
	running sync.WaitGroup
	program *exec.Cmd // nil if no program was started
}

// serviceGrace is the time between SIGTERM and SIGKILL for the program.
const serviceGrace = 30 * time.Second

// start starts a program as a service with the plugin of the loop, and sets l.at. When the
// program ends, start's goroutine calls ended with the exit status as an error.
func (d *devService) start(l *devLoop, program, environ []string, processor bool, ended func(error)) error {
	item, err := itemOf(l.build.file)
	if err != nil {
		return err
	}
	port := cmp.Or(l.s.getenv(admin.EnvPort), strconv.Itoa(admin.DefaultPort))
	list := host.EnvPlugins
	if processor {
		list = host.EnvProcessors
		environ = append(environ, host.EnvPlugins+"="+cmp.Or(l.s.getenv(host.EnvPlugins), "console"))
	}
	environ = append(environ, list+"="+item.String(), host.EnvPluginWatch+"="+cmp.Or(l.s.getenv(host.EnvPluginWatch), "200ms"),
		admin.EnvPort+"="+port, admin.EnvCapture+"=true")
	if l.config != "" {
		environ = append(environ, host.EnvPluginConfig+"="+l.name+"="+l.config)
	}
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = environ
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = launch.DeathPact() // in a process group of its own, so that Ctrl-C does not reach the program: stop ends it
	starts := make(chan error)
	d.running.Go(func() { // ends with the program
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		starts <- err
		if err == nil {
			err = cmd.Wait()
			ended(fmt.Errorf("%s has ended: %w", program[0], cmp.Or(err, errors.New("exit status 0"))))
		}
	})
	if err := <-starts; err != nil {
		return usagef("start %s: %w", program[0], err)
	}
	l.say("started %s, pid %d, status page http://%s", program[0], cmd.Process.Pid, net.JoinHostPort(admin.DefaultHost, port))
	d.program = cmd
	l.at, err = statusURL("--admin", net.JoinHostPort(cmp.Or(l.s.getenv(admin.EnvHost), admin.DefaultHost), port))
	return err
}

// stop ends the program, and waits for its end and for the end of the goroutines. The context
// of the loop must have ended.
func (d *devService) stop() {
	if d.program != nil {
		_ = d.program.Process.Signal(syscall.SIGTERM) // an error means that the program has ended already
		kill := time.AfterFunc(serviceGrace, func() { _ = d.program.Process.Kill() })
		defer kill.Stop()
	}
	d.running.Wait()
}

// lastBatch has the last batch that the running service sent to the plugin. Its goroutine
// captures the batches of the service.
type lastBatch struct {
	mu    sync.Mutex
	batch []byte
}

// get returns the last batch, or nil before the first one.
func (b *lastBatch) get() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.batch
}

// followPause is the time between the end of a capture and the next one.
const followPause = 500 * time.Millisecond

// follow captures batches until ctx ends. It prints an error unless it has printed the same
// error just before. It prints no error in the first five seconds, because the service may
// be starting.
func (b *lastBatch) follow(ctx context.Context, l *devLoop) {
	said := ""
	for began := time.Now(); ctx.Err() == nil; {
		err := b.record(ctx, l)
		starting := time.Since(began) < 5*time.Second
		if err != nil && ctx.Err() == nil && !starting && err.Error() != said {
			said = err.Error()
			l.say("the service's spans cannot be recorded: %s", said)
		}
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
		}
	}
}

// record captures batches until the service ends the capture. It returns an error if the
// capture could not start.
func (b *lastBatch) record(ctx context.Context, l *devLoop) error {
	recording, err := openRecording(ctx, l.at, l.name, time.Hour, 1<<30)
	if err != nil {
		return err
	}
	defer recording.close()
	for {
		batch, err := recording.next()
		if err != nil {
			return nil // the service or the capture has ended
		}
		b.mu.Lock()
		b.batch = batch
		b.mu.Unlock()
	}
}

// lockedWriter is a writer that is safe for concurrent use.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
