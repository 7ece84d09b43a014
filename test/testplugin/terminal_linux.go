package testplugin

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTerminal returns both ends of a pseudo-terminal with the given number of columns:
// the screen, and the shell's end that a program prints to. They are closed with the
// test. If there are no pseudo-terminals, the test is skipped.
func OpenTerminal(tb testing.TB, columns uint16) (screen, shell *os.File) {
	tb.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("no pseudo-terminals here: %v", err)
	}
	tb.Cleanup(func() { _ = screen.Close() })
	conn, err := screen.SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	var number int
	var fault error
	err = conn.Control(func(fd uintptr) {
		if fault = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); fault != nil {
			return
		}
		if fault = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); fault != nil {
			return
		}
		number, fault = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err != nil || fault != nil {
		tb.Skipf("no pseudo-terminals here: %v, %v", err, fault)
	}
	shell, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("no pseudo-terminals here: %v", err)
	}
	tb.Cleanup(func() { _ = shell.Close() })
	return screen, shell
}
