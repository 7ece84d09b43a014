package servetrace

import (
	"bytes"
	"encoding/json"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// What user code logs with the context of its request has the ids of the request
// and its trace, in the service's form; what a library prints is a line too.
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
	giveBack := lendLog(slog.New(slog.NewTextHandler(&own, nil)))
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
	giveBack = lendLog(slog.New(slog.NewTextHandler(&own, nil)))
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
