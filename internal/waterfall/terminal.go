package waterfall

import (
	"io"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/internal/stdio"
)

// The variables that [LookOf] reads, besides the variables of the locale.
const (
	EnvNoColour    = "NO_COLOR"
	EnvForceColour = "FORCE_COLOR"
	EnvTerm        = "TERM"
	EnvColumns     = "COLUMNS"
)

const (
	defaultWidth = 80
	// maxWidth bounds the width, so that a wrong value does not cost memory.
	maxWidth = 1000
)

// LookOf returns the capabilities of an output. If out is a terminal, LookOf uses the width of
// this terminal. Otherwise the argument terminal reports whether the text of out reaches a
// terminal in the end, and columns is its width, or 0 if it is unknown. getenv returns the
// variables above.
func LookOf(getenv func(string) string, out io.Writer, terminal bool, columns int) Look {
	dumb := getenv(EnvTerm) == "dumb"
	l := Look{Width: defaultWidth, ASCII: dumb || !utf8Locale(getenv)}
	if width, own := stdio.Terminal(out); own {
		terminal, columns = true, width
	}
	wanted, _ := strconv.Atoi(getenv(EnvColumns))
	for _, cells := range []int{wanted, columns} {
		if cells > 0 {
			l.Width = min(cells, maxWidth)
		}
	}
	switch force := getenv(EnvForceColour); {
	case getenv(EnvNoColour) != "" || force == "0" || force == "false":
	case force != "":
		l.Colour = true
	default:
		l.Colour = terminal && !dumb && getenv(EnvTerm) != ""
	}
	return l
}

// utf8Locale reports whether the locale uses UTF-8. The first variable that is set decides.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
