package main

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// name is the name of this test binary as the plugin.
const name = "multi-backend-plugin"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		main() // exits
	}
	hellotest.Main(m)
}

// Patterns that find the id of each span in the data of a back end.
var (
	onConsole = regexp.MustCompile(`(?m)^        "span_id": "0x([0-9a-f]{16})",?$`)
	inFile    = regexp.MustCompile(`(?m)"span_id":"([0-9a-f]{16})"`)
)

// count says how often each span is in text.
func count(text string, id *regexp.Regexp) map[string]int {
	seen := map[string]int{}
	for _, match := range id.FindAllStringSubmatch(text, -1) {
		seen[match[1]]++
	}
	return seen
}

// The folder of the file is not there at first: the file's back end fails, while
// the console gets every span, and gets none a second time when the folder comes
// and the file gets them all.
func TestOneBackEndFailsForAWhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "late")
	file := filepath.Join(dir, "spans.jsonl")
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), envFile+"="+file)
	s.Get("/", "r1")
	s.Await(s.Log, `level=WARN .*no such file or directory`, 1) // the host was told, and tries again
	s.Get("/fail", "r2")                                        // a batch of its own, in the middle of it
	const early = 2 * hellotest.SpansOfRequest
	s.Await(s.Stdout, onConsole.String(), early)

	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for late := time.After(hellotest.Patience); ; {
		text, err := os.ReadFile(file)
		if err == nil && len(count(string(text), inFile)) == early {
			break
		}
		select {
		case <-late:
			t.Fatalf("after %v the file has %q, %v", hellotest.Patience, text, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.Get("/", "r3")
	const all = early + hellotest.SpansOfRequest
	s.Await(s.Stdout, onConsole.String(), all)
	s.Stop()

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	console, lines := count(s.Stdout.String(), onConsole), count(string(text), inFile)
	for what, seen := range map[string]map[string]int{"console": console, "file": lines} {
		if len(seen) != all {
			t.Errorf("%s has %d spans, want %d", what, len(seen), all)
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s has span %s %d times", what, id, n)
			}
		}
	}
	if !maps.Equal(console, lines) {
		t.Errorf("the console has spans %v, the file %v", console, lines)
	}
	s.Await(s.Log, `msg=stopped .*\bmulti-backend-plugin\.delivered=12\b`, 1)
}

// The collector refuses for a while: it gets every span all the same, and the
// other two got each once.
func TestCollectorFailsForAWhile(t *testing.T) {
	collector := hellotest.StartReceiver(t)
	collector.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), envFile+"="+file,
		"OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	s.Get("/", "r1")
	s.Await(s.Log, `level=WARN .*503`, 1) // the host was told, and tries again
	s.Get("/fail", "r2")
	const all = 2 * hellotest.SpansOfRequest
	s.Await(s.Stdout, onConsole.String(), all)
	collector.Answer(nil)
	taken := map[string]int{}
	for _, span := range collector.Await(t, all) {
		taken[hex.EncodeToString(span.GetSpanId())]++
	}
	s.Stop()

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	console, lines := count(s.Stdout.String(), onConsole), count(string(text), inFile)
	for what, seen := range map[string]map[string]int{"console": console, "file": lines, "collector": taken} {
		if len(seen) != all || !maps.Equal(seen, console) {
			t.Errorf("%s has spans %v, want the %d of the console: %v", what, seen, all, console)
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s has span %s %d times", what, id, n)
			}
		}
	}
	s.Await(s.Log, `msg=stopped .*\bmulti-backend-plugin\.delivered=8\b`, 1)
}

// Without a file the plugin cannot work, and the error names the setting.
func TestFileIsNeeded(t *testing.T) {
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name))
	s.Await(s.Log, `configuration refused: SPAN_LINES_FILE: .*is empty: set it to the path of a file`, 1)
	s.Stop()
}

func TestConformance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	plugintest.Conformance(t, plugintest.Binary(hellotest.Self(t, name), "GORACE=atexit_sleep_ms=0"),
		plugintest.WithEnv(envFile+"="+file),
		plugintest.WithReceived(func() ([]string, error) {
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			return slices.Collect(maps.Keys(count(string(text), inFile))), err
		}))
}
