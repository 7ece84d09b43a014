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
	// defaultWidth is a line's where nobody says.
	defaultWidth = 80
	// mostWidth bounds it, so that a wrong one costs no memory.
	mostWidth = 1000
)

// looker gives a function that says what standard output can show: by the descriptor
// anew each time, for a terminal's window changes, or else by what the host has said.
// See [EnvPatterns] for the variables.
func looker(s pluginsdk.Setup) func() look {
	getenv := s.Getenv
	dumb := getenv(envTerm) == "dumb"
	fixed := look{width: defaultWidth, ascii: dumb || !utf8Locale(getenv)}
	if columns, err := strconv.Atoi(getenv(envColumns)); err == nil && columns > 0 {
		fixed.width = min(columns, mostWidth)
	}
	noColour := getenv(envNoColour) != ""
	force := getenv(envForceColour)
	return func() look {
		l := fixed
		width, terminal := windowWidth(s.Stdout)
		if !terminal {
			width, terminal = s.Context.TerminalColumns, s.Context.Terminal
		}
		if width > 0 {
			l.width = min(width, mostWidth)
		}
		switch {
		case noColour || force == "0" || force == "false":
		case force != "":
			l.colour = true
		default:
			l.colour = terminal && !dumb && getenv(envTerm) != ""
		}
		return l
	}
}

// windowWidth is the width of the terminal that shows w, if one does; 0 if it
// does not know.
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

// utf8Locale reads the locale's encoding as POSIX has it: the first of these
// that is set counts.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
