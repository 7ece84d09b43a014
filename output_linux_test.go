package servetrace

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/servetrace/servetrace/test/testplugin"
)

// A terminal that shows the service's standard output has drawings in colour, and as
// wide as it is, although the plugin prints to a pipe.
func TestTerminalOfTheService(t *testing.T) {
	for _, columns := range []int{60, 110} {
		screen, shell := testplugin.OpenTerminal(t, uint16(columns))
		dir := t.TempDir()
		link(t, dir, "console")
		cmd := exec.Command(link(t, dir, "service"))
		cmd.Env = []string{
			"GORACE=atexit_sleep_ms=0", "TMPDIR=" + dir, "SERVE_TRACING_PLUGIN_DIR=" + dir, "SERVE_HTTP_PORT=0",
			"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_CONSOLE_FORMAT=pretty",
			"TERM=xterm", "LANG=C.UTF-8",
		}
		log := newSyncBuffer()
		cmd.Stdout, cmd.Stderr = shell, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // a test that failed half-way
		log.await(t, "msg=serving")
		get(t, urlIn(t, log.String())+"/")
		longest := 0
		for _, line := range readDrawing(t, screen) {
			plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(line, "")
			if plain == line {
				t.Errorf("a line without colours: %q", line)
			}
			longest = max(longest, utf8.RuneCountInString(plain))
		}
		if longest > columns || longest < columns-10 {
			t.Errorf("with %d columns the longest line has %d", columns, longest)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the service ended: %v", err)
		}
	}
}

// readDrawing reads a drawing to its empty line.
func readDrawing(t *testing.T, screen *os.File) (drawing []string) {
	t.Helper()
	if err := screen.SetReadDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewReader(screen); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, drawing)
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return drawing
		}
		drawing = append(drawing, line)
	}
}
