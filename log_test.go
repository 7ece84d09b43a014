package servetrace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/servetrace/servetrace/internal/logqueue"
)

// Log lines of user code with the context of its request have the ids of the request and
// its trace, in the service's format. The output of a library is a line, too.
func TestLogOfUserCode(t *testing.T) {
	p := launchProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_LOG_FORMAT=json")
	p.log.await(t, `"msg":"serving"`)
	for line := range strings.Lines(p.log.String()) {
		var fields struct{ URL string }
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		p.url += fields.URL
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/log", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-ID", "r-1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	p.log.await(t, `"msg":"request"`)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
	lines := map[string]map[string]any{}
	for line := range strings.Lines(p.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%v in %s", err, line)
			continue
		}
		lines[fields["msg"].(string)] = fields
	}
	own, access := lines["from slog"], lines["request"]
	if own == nil || access == nil || lines["from log"] == nil {
		t.Fatalf("not all lines are there:\n%s", p.log)
	}
	for _, key := range []string{"request_id", "trace_id", "app", "deployment", "replica"} {
		if access[key] == nil || own[key] != access[key] {
			t.Errorf("%s is %v in the line of user code, %v in the access log", key, own[key], access[key])
		}
	}
	spans := map[string]string{}
	for _, s := range p.spans() {
		family, _, _ := strings.Cut(s.Name, " ")
		spans[strings.TrimPrefix(s.Context.SpanID, "0x")] = family
	}
	for line, want := range map[string]string{"from slog": "replica_handle_request", "request": "proxy_http_request"} {
		if id, _ := lines[line]["span_id"].(string); spans[id] != want {
			t.Errorf("the line %q has the span %q, which is %q, want %q", line, id, spans[id], want)
		}
	}
	if own["own"] != 1.0 {
		t.Errorf("the line of user code is %v", own)
	}
}

// A program that has set a log of its own keeps it; else all is as it was.
func TestLendLog(t *testing.T) {
	var own, theirs bytes.Buffer
	writer, flags, handler := log.Writer(), log.Flags(), slog.Default().Handler()
	q := logqueue.New(io.Discard, nil)
	defer q.Close()
	giveBack := setDefaultLog(slog.New(slog.NewTextHandler(&own, nil)), q)
	slog.Info("one")
	log.Print("two")
	giveBack()
	if text := own.String(); !strings.Contains(text, "msg=one") || !strings.Contains(text, "msg=two") {
		t.Errorf("the log has %q", text)
	}
	if log.Writer() != writer || log.Flags() != flags || slog.Default().Handler() != handler {
		t.Error("the logs are not what they were")
	}

	before := slog.Default()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(writer)
		log.SetFlags(flags)
	})
	slog.SetDefault(slog.New(slog.NewTextHandler(&theirs, nil)))
	own.Reset()
	giveBack = setDefaultLog(slog.New(slog.NewTextHandler(&own, nil)), q)
	slog.Info("three")
	giveBack()
	slog.Info("four")
	if own.Len() > 0 || !strings.Contains(theirs.String(), "msg=three") || !strings.Contains(theirs.String(), "msg=four") {
		t.Errorf("ours has %q, theirs %q", own.String(), theirs.String())
	}
}

func TestLogFormat(t *testing.T) {
	if _, err := ConfigFromEnv(env("SERVE_LOG_FORMAT=xml")); err == nil || err.Error() != `SERVE_LOG_FORMAT="xml": want text or json` {
		t.Errorf("error %v", err)
	}
	for value, want := range map[string]string{"": "level=INFO", "text": "level=INFO", "json": `"level":"INFO"`} {
		cfg, err := ConfigFromEnv(env("SERVE_LOG_FORMAT=" + value))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cfg.newLog(&out).Info("m")
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q gives %q", value, out.String())
		}
	}
}

// verboseLines is the number of lines that the path /verbose logs, besides the access
// log.
const verboseLines = 10

// overflowLog sends requests while the log is not read, until the log has dropped lines.
// Each request must be answered. It returns the number of lines.
func overflowLog(t *testing.T, serving string) (lines int) {
	t.Helper()
	client := &http.Client{Timeout: bound}
	metrics := strings.Replace(adminURL(t, serving), "/-/tracing", "/metrics", 1)
	for {
		resp, err := client.Get(urlIn(t, serving) + "/verbose")
		if err != nil {
			t.Fatalf("after %d lines: %v", lines, err)
		}
		_ = resp.Body.Close()
		lines += verboseLines + 1
		if _, body := get(t, metrics); !strings.Contains(body, "\nserve_log_lines_dropped_total 0\n") {
			return lines
		}
	}
}

// The log is not read while requests come, and no request waits. Then the log has each
// line whole, except for the dropped lines that it reports.
func TestLogThatIsReadLate(t *testing.T) {
	cmd, log, serving := startPiped(t, "SERVE_ADMIN_PORT=0")
	logged := overflowLog(t, serving)
	reader := bufio.NewReader(log)
	next := func() string {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, line)
		}
		if !strings.HasPrefix(line, "time=") || strings.Count(line, "time=") != 1 {
			t.Fatalf("not a whole line: %q", line)
		}
		return line
	}
	lines, told := 0, 0
	for lines+told < logged { // or the test ends by its timeout
		line := next()
		switch {
		case strings.Contains(line, "msg=request"), strings.Contains(line, "msg=verbose"):
			lines++
		case strings.Contains(line, `msg="log lines dropped`):
			var n int
			if _, err := fmt.Sscanf(line[strings.LastIndex(line, "lines="):], "lines=%d", &n); err != nil {
				t.Errorf("%v in %q", err, line)
			}
			told += n
		}
	}
	_, body := get(t, strings.Replace(adminURL(t, serving), "/-/tracing", "/metrics", 1))
	if want := fmt.Sprintf("\nserve_log_lines_dropped_total %d\n", told); told == 0 || lines+told != logged || !strings.Contains(body, want) {
		t.Errorf("of %d lines %d are there, and %d are told as dropped; the metrics:\n%s", logged, lines, told, body)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(next(), "msg=stopped") { // the last line
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the service ended: %v", err)
	}
}

// The log has no reader: the service stops all the same.
func TestHungLogDoesNotKeepTheService(t *testing.T) {
	cmd, _, serving := startPiped(t, "SERVE_ADMIN_PORT=0")
	overflowLog(t, serving)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the service ended: %v", err)
	}
}

// A program that ends itself has its last words in the log.
func TestLastWords(t *testing.T) {
	for path, want := range map[string]string{"/fatal": "last words by log", "/exit": `msg="last words" by=slog`} {
		p := startProc(t)
		if resp, err := http.Get(p.url + path); err == nil {
			_ = resp.Body.Close()
		}
		if code := p.wait(); code != 1 || !strings.Contains(p.log.String(), want) {
			t.Errorf("exit code %d, want 1 and %q in the log:\n%s", code, want, p.log)
		}
	}
}
