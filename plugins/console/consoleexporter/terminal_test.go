package consoleexporter

import (
	"bytes"
	"testing"
)

// TestLook holds what variables say about an output that is no terminal. A
// terminal is in plugins/console/main_test.go.
func TestLook(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want look
	}{
		{"nothing is set", nil, look{width: 80, ascii: true}},
		{"LANG", map[string]string{"LANG": "de_DE.UTF-8"}, look{width: 80}},
		{"another encoding", map[string]string{"LANG": "de_DE.ISO-8859-1"}, look{width: 80, ascii: true}},
		{"LC_ALL beats LANG", map[string]string{"LC_ALL": "C", "LANG": "C.UTF-8"}, look{width: 80, ascii: true}},
		{"LC_CTYPE beats LANG", map[string]string{"LC_CTYPE": "C.utf8", "LANG": "C"}, look{width: 80}},
		{"LC_ALL beats LC_CTYPE", map[string]string{"LC_ALL": "C.UTF-8", "LC_CTYPE": "C"}, look{width: 80}},
		{"macOS", map[string]string{"LC_CTYPE": "UTF-8"}, look{width: 80}},
		{"dumb", map[string]string{"LANG": "C.UTF-8", "TERM": "dumb"}, look{width: 80, ascii: true}},
		{"TERM is no reason for colours", map[string]string{"LANG": "C.UTF-8", "TERM": "xterm"}, look{width: 80}},
		{"COLUMNS", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "132"}, look{width: 132}},
		{"COLUMNS that is none", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "wide"}, look{width: 80}},
		{"COLUMNS below one", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "-5"}, look{width: 80}},
		{"COLUMNS without end", map[string]string{"LANG": "C.UTF-8", "COLUMNS": "999999999"}, look{width: 1000}},
		{"FORCE_COLOR", map[string]string{"LANG": "C.UTF-8", "FORCE_COLOR": "1"}, look{width: 80, colour: true}},
		{"FORCE_COLOR off", map[string]string{"LANG": "C.UTF-8", "FORCE_COLOR": "0"}, look{width: 80}},
		{"NO_COLOR beats it", map[string]string{"LANG": "C.UTF-8", "FORCE_COLOR": "1", "NO_COLOR": "1"}, look{width: 80}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := looker(func(name string) string { return c.env[name] }, &bytes.Buffer{})()
			if got != c.want {
				t.Errorf("look %+v, want %+v", got, c.want)
			}
		})
	}
}
