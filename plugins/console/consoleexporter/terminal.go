package consoleexporter

import (
	"io"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/pluginsdk"
)

const (
	defaultWidth = 80
	// maxWidth bounds the width, so that a wrong value does not cost memory.
	maxWidth = 1000
)

// lookOf returns the capabilities of the standard output. They are its own if it is a
// terminal, as for a plugin that listens by itself, or else the values of the host.
// See [EnvPatterns] for the variables.
func lookOf(s pluginsdk.Setup) look {
	dumb := s.Getenv(envTerm) == "dumb"
	l := look{width: defaultWidth, ascii: dumb || !utf8Locale(s.Getenv)}
	width, terminal := windowWidth(s.Stdout)
	if !terminal {
		width, terminal = s.Context.TerminalColumns, s.Context.Terminal
	}
	columns, _ := strconv.Atoi(s.Getenv(envColumns))
	for _, cells := range []int{columns, width} {
		if cells > 0 {
			l.width = min(cells, maxWidth)
		}
	}
	switch force := s.Getenv(envForceColour); {
	case s.Getenv(envNoColour) != "" || force == "0" || force == "false":
	case force != "":
		l.colour = true
	default:
		l.colour = terminal && !dumb && s.Getenv(envTerm) != ""
	}
	return l
}

// windowWidth returns the width of the terminal behind w, 0 if it is unknown, and
// whether there is a terminal.
func windowWidth(w io.Writer) (width int, terminal bool) {
	file, ok := w.(syscall.Conn)
	if !ok {
		return 0, false
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = conn.Control(func(fd uintptr) {
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			width, terminal = int(size.Col), true
		}
	})
	return width, err == nil && terminal
}

// utf8Locale reports whether the locale uses UTF-8, by the first variable set.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
