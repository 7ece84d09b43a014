package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/servetrace/servetrace/test/testplugin"
)

// readTrace reads a drawing to its empty line.
func readTrace(t *testing.T, screen *os.File) []string {
	t.Helper()
	if err := screen.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scanner := bufio.NewReader(screen); ; {
		line, err := scanner.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, lines)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			return lines
		}
		lines = append(lines, line)
	}
}

// TestTerminal: drawings on a terminal have colours and its width.
func TestTerminal(t *testing.T) {
	long := strings.Repeat("name ", 100)
	for _, columns := range []uint16{50, 30} {
		screen, shell := testplugin.OpenTerminal(t, columns)
		conn := start(t, shell, map[string]string{
			"SERVE_CONSOLE_FORMAT": "pretty", "TERM": "xterm", "COLUMNS": "132", "LC_ALL": "C.UTF-8",
		})
		if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), request(long)); err != nil {
			t.Fatal(err)
		}
		lines := readTrace(t, screen)
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "\x1b[2mtrace \x1b[0m\x1b[1m0000") {
			t.Fatalf("the terminal got %q", lines)
		}
		name, _, cut := strings.Cut(lines[1], "…")
		if width := int(columns); !cut || !strings.HasPrefix(long, name) || len(name) > width || len(name) < width/3 {
			t.Errorf("with %d columns the terminal got %q", columns, lines[1])
		}
	}
}

// TestTerminalWithoutColours: a user who wants no colours, and a locale that is not UTF-8.
func TestTerminalWithoutColours(t *testing.T) {
	screen, shell := testplugin.OpenTerminal(t, 50)
	conn := start(t, shell, map[string]string{"SERVE_CONSOLE_FORMAT": "pretty", "TERM": "xterm", "NO_COLOR": "1", "LC_ALL": "C"})
	if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), request("né")); err != nil {
		t.Fatal(err)
	}
	lines := readTrace(t, screen)
	if len(lines) != 2 || lines[0] != "trace 00000000000000000000000000000000  1 span" || !strings.HasPrefix(lines[1], `n\u00e9 `) {
		t.Errorf("the terminal got %q", lines)
	}
}
