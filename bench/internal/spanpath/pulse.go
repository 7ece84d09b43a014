package spanpath

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PulseRole is the role of the process that gives pulses.
const PulseRole = "pulse"

// pulses calls f whenever another process sends a byte, which it does each
// period, for so long. A pulse that comes while f runs is not lost.
func pulses(ctx context.Context, period, length time.Duration, f func()) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "child", PulseRole, period.String(), length.String())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe() // which the scheduler polls, as it would a socket
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pulses: %w", err)
	}
	var one [1]byte
	for {
		if _, err := io.ReadFull(out, one[:]); err != nil {
			break // it has ended
		}
		f()
	}
	return cmd.Wait()
}

// Pulse is the process that gives pulses: period and length are its arguments.
// Between them the thread sleeps in the kernel, whose clock is finer than that
// of Go's scheduler.
func Pulse(stdout io.Writer, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("pulses: %d arguments, want period and length", len(args))
	}
	period, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	length, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	began := time.Now()
	for n := int64(1); ; n++ {
		due := time.Duration(n * int64(period))
		if due > length {
			return nil
		}
		if rest := due - time.Since(began); rest > 0 {
			ts := unix.NsecToTimespec(int64(rest))
			_ = unix.Nanosleep(&ts, nil) // cut short by a signal, the next one is early
		}
		if _, err := stdout.Write([]byte(".")); err != nil {
			return err
		}
	}
}
