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

// Main runs the plugin as this process and does not return. It exits with 0
// after a clean end, with 1 otherwise.
//
// Main owns signals, standard input and standard output. It also handles the
// flags --version, --describe, --help, and --listen with --debug and --config.
// Call Main from main, with nothing before it except what the Spec needs.
//
// Under a host, file descriptor 1 is the log from the handshake on, for Go code
// and any other. What a plugin means to print goes to Setup.Stdout.
func Main(spec Spec) { os.Exit(runProcess(spec)) }

// runProcess is Main up to the exit code.
func runProcess(spec Spec) int {
	env := Env{Args: os.Args, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	// One that runs from memory, as under a pin, has no path but the one that it
	// was called by.
	if path, err := os.Executable(); err == nil && !strings.HasPrefix(path, "/memfd:") {
		env.Args = append([]string{path}, os.Args[min(1, len(os.Args)):]...)
	}
	if !hosted(env) || flagOf(env) != "" || wantsListen(env) {
		ctx := context.Background()
		if wantsListen(env) {
			var stop context.CancelFunc
			ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			context.AfterFunc(ctx, stop) // a second one ends the process at once
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
	// A terminal sends SIGINT to the host's whole group; SIGPIPE comes when the
	// host is gone and a log line is written. Neither may cut a call in flight.
	// Notify, unlike Ignore, is not passed on to children.
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
	outlive(parent, why, env.lookup(wire.EnvSocketDir))
	return exitCode(err)
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// takeDescriptors sorts standard input and output for a hosted process: the
// handshake goes to the real standard output, whatever is printed after it to
// the log, and Setup.Stdout to what the host shares.
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
	env.shaken = func() { _ = handshake.Close() } // the host then reads to the end
	env.Log = os.Stderr
	env.Stdout = openStdout(env, log)
	// Not a terminal's, and not the /dev/null that a shell gives to a plugin in
	// the background.
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
		env.Stdin = struct{ io.Reader }{os.Stdin} // never closed: a blocked read would hold Close
	}
	return nil
}

// openStdout gives the file behind the descriptor that the host passed on for its
// standard output, or nil if there is none that can be used.
func openStdout(env *Env, log *slog.Logger) io.Writer {
	value := env.lookup(wire.EnvStdoutFD)
	if value == "" {
		return nil
	}
	f, err := openDescriptor(value, "standard output")
	if err != nil {
		log.Warn("what the host shares cannot be used, printing to the log", "variable", wire.EnvStdoutFD, "value", value, "error", err)
		return nil
	}
	return f
}

// openDescriptor opens a descriptor by its number and keeps it from children.
func openDescriptor(value, name string) (*os.File, error) {
	fd, err := strconv.Atoi(value)
	if err != nil {
		return nil, err
	}
	if fd <= syscall.Stderr {
		return nil, errors.New("want 3 or more")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, fmt.Errorf("look at the descriptor: %w", err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// Pace of the watch over the parent, for where neither the kernel's death
// signal nor the end of standard input comes.
const (
	// parentPoll is for where the parent's end cannot be awaited.
	parentPoll = 500 * time.Millisecond
	// parentGrace is how long a dying host may still be the parent: the kernel
	// closes its files and sends Pdeathsig, thread by thread, before that.
	parentGrace = 200 * time.Millisecond
)

// watchParent gives a channel that is closed when the parent is another. The
// watch lasts as long as the process, and does not wake it up where it need not:
// a plugin that has nothing to do should cost nothing.
func watchParent(parent int) <-chan struct{} {
	gone := make(chan struct{})
	// Before it is asked who the parent is: while that is the same, its number can
	// not have been given to another process.
	awaitEnd := processEnd(parent)
	go func() {
		defer close(gone)
		if os.Getppid() == parent {
			awaitEnd()
		}
		ticker := time.NewTicker(parentPoll)
		defer ticker.Stop()
		for os.Getppid() == parent {
			<-ticker.C
		}
	}()
	return gone
}

// kinTimeout is how long the plugin's children may take to end by SIGKILL.
const kinTimeout = 500 * time.Millisecond

// outlive does what the host cannot do any more if it is gone: it takes
// children of the plugin along, those that have left its process group by the
// folder in their environment, the others by SIGKILL to the group, where it
// leads one; and it removes the folder. A folder that others may share, as
// where another kind of host passes on a variable of its own, is no mark.
func outlive(parent int, why ending, socketDir string) {
	grace := time.Duration(0)
	if why == hostGone || why == signalled { // the signal may be the kernel's
		grace = parentGrace
	}
	for deadline := time.Now().Add(grace); os.Getppid() == parent; time.Sleep(parentGrace / 20) {
		if !time.Now().Before(deadline) {
			return
		}
	}
	if folder := filepath.Dir(socketDir); wire.IsSocketFolder(folder) { // a host has made it for this plugin alone
		ctx, cancel := context.WithTimeout(context.Background(), kinTimeout)
		defer cancel()
		// What cannot be killed stays, and there is nobody left to be told.
		_, _ = proctree.Kill(ctx, proctree.Mark{
			Variable: wire.EnvSocketDir, Is: func(value string) bool { return value == socketDir },
		})
		if _, err := os.Lstat(filepath.Join(folder, wire.SocketFolderLock)); err == nil {
			_ = os.RemoveAll(folder)
		}
	}
	if unix.Getpgrp() == os.Getpid() {
		_ = unix.Kill(-os.Getpid(), unix.SIGKILL) // this process too
	}
}
