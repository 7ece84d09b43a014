package servetrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGHUP applies the edited service file: a new process writes to another place, under
// load and without a lost span. Then a broken file changes nothing except the log.
func TestServiceFileIsEditedUnderLoad(t *testing.T) {
	dir := t.TempDir()
	folder := func(name string) string { return filepath.Join(dir, name) }
	text := func(output string) string {
		return fmt.Sprintf("tracing_config: {exporter_plugin: console, batch_age: 20ms, plugins: {console: {config: {exporter: {output: %q}}}}}\n", output)
	}
	file := serviceFile(t, text(folder("first")))
	p := startProc(t, "SERVE_CONFIG="+file, "SERVE_ADMIN_PORT=0", "SERVE_TRACING_MAX_AGE=10m", "SERVE_TRACING_EXPORT_TIMEOUT=1m")
	p.log.await(t, `msg="plugin is ready"`)
	url := adminURL(t, p.log.String())

	requests := 0
	edit := func(text, until string) (pid int) {
		t.Helper()
		next := filepath.Join(dir, "next.yaml")
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGHUP)
		late := time.After(4 * bound)
		for end := false; !end; requests++ { // one more when it is over
			end = strings.Contains(p.log.String(), until)
			if status, _ := get(t, p.url+"/"); status != 200 {
				t.Fatalf("request %d: status %d\n%s", requests, status, p.log)
			}
			select {
			case <-p.ended:
				t.Fatalf("the service has ended: %v\n%s", p.err, p.log)
			case <-late:
				t.Fatalf("no %q in the log:\n%s", until, p.log)
			default:
			}
		}
		status := statusAt(t, url)
		if status.BooksError != "" || len(status.Plugins) != 1 {
			t.Fatalf("after %q: %+v\n%s", until, status, p.log)
		}
		return status.Plugins[0].PID
	}
	before := statusAt(t, url).Plugins[0].PID
	second := edit(text(folder("second")), `msg="the reload of plugins has ended`)
	if second == before {
		t.Errorf("process %d has the new document, or nobody has", second)
	}
	third := edit("tracing_config: {exporter_plugin: console, batch_ago: 1s}\n", "some plugins stay as they were")
	if third != second {
		t.Errorf("process %d has taken the place of %d with a broken file", third, second)
	}
	if log := p.log.String(); !strings.Contains(log, file+`:1:44: tracing_config: there is no key \"batch_ago\"; did you mean batch_age?`) {
		t.Errorf("the log does not say what is wrong with the file:\n%s", log)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 || !strings.Contains(p.log.String(), "level=INFO msg=stopped") {
		t.Errorf("exit code %d\n%s", code, p.log)
	}

	first, after := idsIn(t, folder("first")), idsIn(t, folder("second"))
	if len(after) == 0 { // the first folder may have none: the new process may be quicker than a batch
		t.Error("no spans where the file said then")
	}
	for id := range first {
		after[id] = true
	}
	if want := 4 * requests; len(after) != want { // of proxy, router, replica and user
		t.Errorf("%d spans of %d requests, want %d\n%s", len(after), requests, want, p.log)
	}
}

// idsIn are the ids of the spans in a folder of span files.
func idsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	names, err := filepath.Glob(filepath.Join(dir, "*_tracing.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.Open(name) //nolint:gosec // of the test's own folder
		if err != nil {
			t.Fatal(err)
		}
		for d := json.NewDecoder(f); ; {
			var one printed
			if err := d.Decode(&one); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			ids[one.Context.TraceID+one.Context.SpanID] = true
		}
		_ = f.Close() // read only
	}
	return ids
}
