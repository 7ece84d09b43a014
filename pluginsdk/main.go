package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/proctree"
	"github.com/servetrace/servetrace/internal/wire"
)

// Main runs the plugin as this process and does not return. The exit status is 0 after a
// clean end, 1 otherwise.
//
// Main handles signals, standard input and standard output, and the flags --version,
// --describe, --help, --listen, --debug and --config. Call it first in main. Only code
// that computes the Spec may come before it.
//
// If a host started the plugin, everything that is written to file descriptor 1 after the
// handshake goes to the log. Write the plugin's output to Setup.Stdout.
func Main(spec Spec) { os.Exit(runProcess(spec)) }

// runProcess does the work of Main, and returns the exit status.
func runProcess(spec Spec) int {
	env := Env{Args: os.Args, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	if len(os.Args) > 0 {
		env.Args = append([]string{executable()}, os.Args[1:]...)
	}
	if !hosted(env) || flagOf(env) != "" || wantsListen(env) {
		ctx := context.Background()
		if wantsListen(env) {
			var stop context.CancelFunc
			ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
		}
		err := Run(ctx, env, spec)
		if err != nil && !errors.Is(err, ErrNotHosted) {
			fmt.Fprintln(os.Stderr, err)
		}
		return exitCode(err)
	}

	parent := os.Getppid()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// A terminal sends SIGINT to the host's whole process group. A write to the log fails
	// with SIGPIPE after the host has ended. Neither signal must cancel a call in flight.
	// signal.Notify is used and not signal.Ignore, because child processes would inherit
	// that.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGPIPE)

	log := newLogger(os.Stderr)
	if err := takeDescriptors(&env, log); err != nil {
		log.Error("plugin cannot start", "error", err)
		return 1
	}
	env.setenv = os.Setenv
	env.orphaned = watchParent(parent)
	why, err := run(ctx, env, spec)
	if err != nil {
		log.Error("plugin ends", "reason", string(why), "error", err)
	}
	killChildren(parent, why, env.lookup(wire.EnvSocketDir))
	return exitCode(err)
}

// executable returns the path of this process's file. It returns argument 0 if that is a
// path: it may be a link with the name of the plugin, or the only path of a plugin that
// the host runs from memory.
func executable() string {
	if path, err := os.Executable(); err == nil && !strings.Contains(os.Args[0], "/") {
		return path
	}
	return os.Args[0]
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// takeDescriptors sets up standard input and output of a process that a host started. The
// handshake goes to the original standard output. All later output on descriptor 1 goes
// to the log. Setup.Stdout writes to the descriptor that the host shares for this
// purpose.
func takeDescriptors(env *Env, log *slog.Logger) error {
	fd, err := unix.FcntlInt(uintptr(syscall.Stdout), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("keep standard output for the handshake: %w", err)
	}
	handshake := os.NewFile(uintptr(fd), "handshake")
	if err := dup2(syscall.Stderr, syscall.Stdout); err != nil {
		return fmt.Errorf("point standard output at the log: %w", err)
	}
	env.Handshake = handshake
	env.shaken = func() { _ = handshake.Close() } // so that the host reads to the end of the original standard output
	env.Log = os.Stderr
	env.Stdout = openStdout(env, log)
	// Only the end of a pipe or a socket means that the host has ended. A terminal is not
	// watched, nor /dev/null, which a shell gives to a background process.
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
		env.Stdin = struct{ io.Reader }{os.Stdin} // not closed, because a blocked read would block Close
	}
	return nil
}

// openStdout opens the descriptor on which the host takes the plugin's output. It returns
// nil if the host shares none, or if it cannot be used.
func openStdout(env *Env, log *slog.Logger) io.Writer {
	value := env.lookup(wire.EnvStdoutFD)
	if value == "" {
		return nil
	}
	f, err := openDescriptor(value, "standard output")
	if err != nil {
		log.Warn("the descriptor that the host shares cannot be used, printing to the log", "variable", wire.EnvStdoutFD, "value", value, "error", err)
		return nil
	}
	return f
}

// openDescriptor returns a file for the descriptor with the number in value. Child
// processes do not inherit the descriptor.
func openDescriptor(value, name string) (*os.File, error) {
	fd, err := strconv.Atoi(value)
	if err != nil {
		return nil, err
	}
	if fd <= syscall.Stderr {
		return nil, errors.New("want 3 or more")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, fmt.Errorf("check the descriptor: %w", err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// Times for the check of the parent process. The plugin checks it because neither the
// kernel's signal at the death of the parent nor the end of standard input is certain.
const (
	// parentPoll is the interval of the checks on a system that cannot wait for the end of
	// the parent.
	parentPoll = 500 * time.Millisecond
	// parentGrace is the time for which a dying host may still be the parent. The kernel
	// first closes the host's files and sends the death signal, for one thread after
	// another.
	parentGrace = 200 * time.Millisecond
)

// watchParent returns a context that ends when the parent process has changed. Its
// goroutine runs as long as the process. If the system can wait for the parent's end, the
// goroutine sleeps until then, so that an idle plugin costs nothing.
func watchParent(parent int) context.Context {
	ctx, gone := context.WithCancel(context.Background())
	// processEnd is called before Getppid: if the parent is still the same afterwards,
	// processEnd has opened the parent, and no other process with a reused id.
	awaitEnd := processEnd(parent)
	go func() {
		defer gone()
		if os.Getppid() == parent {
			awaitEnd()
		}
		ticker := time.NewTicker(parentPoll)
		defer ticker.Stop()
		for os.Getppid() == parent {
			<-ticker.C
		}
	}()
	return ctx
}

// childTimeout bounds the time for which killChildren waits until the killed processes
// have ended.
const childTimeout = 500 * time.Millisecond

// killChildren kills the plugin's child processes if the host has ended, because the host
// can no longer kill them. It finds them by the socket folder in their environment, and
// then removes the folder. It skips both for a folder that no servetrace host has made,
// because other processes may share it. At last it kills the plugin's own process group,
// this process included, if the plugin leads it.
func killChildren(parent int, why ending, socketDir string) {
	grace := time.Duration(0)
	if why == hostGone || why == signalled { // the kernel may have sent the signal because the host is dying
		grace = parentGrace
	}
	for deadline := time.Now().Add(grace); os.Getppid() == parent; time.Sleep(parentGrace / 20) {
		if !time.Now().Before(deadline) {
			return
		}
	}
	if folder := filepath.Dir(socketDir); wire.IsSocketFolder(folder) { // a servetrace host has made it for this plugin only
		ctx, cancel := context.WithTimeout(context.Background(), childTimeout)
		defer cancel()
		// A child that cannot be killed is left running, because there is no host to which it
		// could be reported.
		_, _ = proctree.Kill(ctx, proctree.Mark{
			Variable: wire.EnvSocketDir, Is: func(value string) bool { return value == socketDir },
		})
		if _, err := os.Lstat(filepath.Join(folder, wire.SocketFolderLock)); err == nil {
			_ = os.RemoveAll(folder)
		}
	}
	if unix.Getpgrp() == os.Getpid() {
		_ = unix.Kill(-os.Getpid(), unix.SIGKILL)
	}
}
