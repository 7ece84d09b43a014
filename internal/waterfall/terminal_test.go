package waterfall

import (
	"io"
	"testing"
)

// TestLook holds the effects of the variables and of the host's values if the output is
// a pipe. TestTerminal in plugins/console has a terminal.
func TestLook(t *testing.T) {
	type host struct {
		terminal bool
		columns  int
	}
	none, shown := host{}, host{true, 50}
	for _, c := range []struct {
		name string
		env  map[string]string
		want Look
		host host // its values
	}{
		{"nothing is set", nil, Look{Width: 80, ASCII: true}, none},
		{"LANG", map[string]string{"LANG": "de_DE.UTF-8"}, Look{Width: 80}, none},
		{"another encoding", map[string]string{"LANG": "de_DE.ISO-8859-1"}, Look{Width: 80, ASCII: true}, none},
		{"LC_ALL beats LANG", map[string]string{"LC_ALL": "C", "LANG": "C.UTF-8"}, Look{Width: 80, ASCII: true}, none},
		{"LC_CTYPE beats LANG", map[string]string{"LC_CTYPE": "C.utf8", "LANG": "C"}, Look{Width: 80}, none},
		{"LC_ALL beats LC_CTYPE", map[string]string{"LC_ALL": "C.UTF-8", "LC_CTYPE": "C"}, Look{Width: 80}, none},
		{"macOS", map[string]string{"LC_CTYPE": "UTF-8"}, Look{Width: 80}, none},
		{"dumb", map[string]string{"LANG": "C.UTF-8", "TERM": "dumb"}, Look{Width: 80, ASCII: true}, none},
		{"TERM is no reason for colours", map[string]string{"LANG": "C.UTF-8", "TERM": "xterm"}, Look{Width: 80}, none},
		{"COLUMNS", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "132"}, Look{Width: 132}, none},
		{"COLUMNS that is none", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "wide"}, Look{Width: 80}, none},
		{"COLUMNS below one", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "-5"}, Look{Width: 80}, none},
		{"COLUMNS without end", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "999999999"}, Look{Width: 1000}, none},
		{"FORCE_COLOR", map[string]string{"LANG": "C.UTF-8", "FORCE_COLOR": "1"}, Look{Width: 80, Colour: true}, none},
		{"FORCE_COLOR off", map[string]string{"LANG": "C.UTF-8", "FORCE_COLOR": "0"}, Look{Width: 80}, none},
		{"NO_COLOR beats it", map[string]string{"LANG": "C.UTF-8", "FORCE_COLOR": "1", "NO_COLOR": "1"}, Look{Width: 80}, none},
		{"a terminal", map[string]string{"LANG": "C.UTF-8", "TERM": "xterm", "COLUMNS": "132"}, Look{Width: 50, Colour: true}, shown},
		{"a terminal without TERM", map[string]string{"LANG": "C.UTF-8"}, Look{Width: 50}, shown},
		{"a dumb terminal", map[string]string{"LANG": "C.UTF-8", "TERM": "dumb"}, Look{Width: 50, ASCII: true}, shown},
		{"NO_COLOR on a terminal", map[string]string{"LANG": "C.UTF-8", "TERM": "xterm", "NO_COLOR": "1"}, Look{Width: 50}, shown},
		{"a terminal that does not know its width", map[string]string{"LANG": "C.UTF-8", "TERM": "xterm", "COLUMNS": "132"}, Look{Width: 132, Colour: true}, host{terminal: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := LookOf(func(name string) string { return c.env[name] }, io.Discard, c.host.terminal, c.host.columns)
			if got != c.want {
				t.Errorf("look %+v, want %+v", got, c.want)
			}
		})
	}
}
