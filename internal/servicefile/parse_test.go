package servicefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// unset is an empty environment.
func unset(string) string { return "" }

// Every kind of fault that a file by itself can have, with its place and its
// whole text.
func TestFaults(t *testing.T) {
	sections := "name, tracing_config, http_options, grpc_options, call_options, admin, relay, logging_config, applications"
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"", "1:1: the file is empty; one without settings is {}"},
		"comments only":      {"# nothing\n", "1:1: the file is empty; one without settings is {}"},
		"null":               {"---\n", "1:1: the file is empty; one without settings is {}"},
		"no settings":        {"{}", ""},
		"text":               {"tracing", `1:1: the text "tracing"; want keys below it: ` + sections},
		"list":               {"- a", `1:1: a list; want keys below it: ` + sections},
		"two documents":      {"name: a\n---\nname: b\n", "2:1: a second document begins, want one"},
		"end of document":    {"---\nname: a\n...\n", ""},
		"tab":                {"tracing_config:\n\tenabled: true\n", "2:1: not YAML: found character that cannot start any token: indent with spaces, not tabs, and put a value that begins with \"@\", \"%\" or \"`\" in quotes"},
		"no YAML":            {"name: a\nname: b: c\n", "2:8: not YAML: mapping values are not allowed in this context: look at the indentation, and put a value with a colon and a space in quotes"},
		"open list":          {"name: a\n\nhttp_options: [1,\n", "4:1: not YAML: did not find expected node content"},
		"control byte":       {"name: a\nhttp_options: {host: \"\x01\"}\n", "2:23: the byte 0x01 is no text; write the file in UTF-8"},
		"latin 1":            {"name: caf\xe9\n", "1:10: the byte 0xe9 is no text; write the file in UTF-8"},
		"UTF-16":             {"\xff\xfen\x00a\x00m\x00e\x00:\x00 \x00a\x00", "1:1: the byte 0xff is no text; write the file in UTF-8"},
		"byte order mark":    {"\ufeffname: a\n", ""},
		"CRLF":               {"name: a\r\ntracing_config:\r\n  enabled: x\r\n", `3:12: tracing_config.enabled: the text "x"; want true or false`},
		"misspelt section":   {"tracing_cofnig: {}", `1:1: there is no key "tracing_cofnig"; did you mean tracing_config?`},
		"misspelt key":       {"tracing_config: {queue_byte: 1}", `1:18: tracing_config: there is no key "queue_byte"; did you mean queue_bytes?`},
		"key in capitals":    {"NAME: x", `1:1: there is no key "NAME"; did you mean name?`},
		"key elsewhere":      {"enabled: true", `1:1: there is no key "enabled"; did you mean tracing_config.enabled?`},
		"variable":           {"SERVE_HTTP_PORT: 1", `1:1: there is no key "SERVE_HTTP_PORT"; did you mean http_options.port?`},
		"key of nobody":      {"logging_config: {colour: red}", `1:18: logging_config: there is no key "colour"; want one of log_level, encoding, enable_access_log`},
		"key twice":          {"name: a\nname: b\n", "2:1: name: this key stands in line 1 already"},
		"no word":            {"[a]: b", "1:1: a key is a list; want a word"},
		"alias":              {"name: &a x\nhttp_options: {host: *a}", "2:22: http_options.host: " + noAlias},
		"alias as section":   {"http_options: &a {}\nlogging_config: *a", "2:17: logging_config: " + noAlias},
		"alias as key":       {"name: &a x\n*a : y", "2:1: " + noAlias},
		"alias of nothing":   {"name: x\nhttp_options: {host: *nowhere}", "2:22: not YAML: a value that begins with \"*\" and is no alias of an anchor: put it in quotes"},
		"merge":              {"http_options: &a {}\nlogging_config: {<<: *a}", "2:18: logging_config: " + noMerge},
		"section is text":    {"tracing_config: on", `1:17: tracing_config: the text "on"; want keys below it: ` + strings.Join(below("tracing_config"), ", ")},
		"section is null":    {"tracing_config:\n", ""},
		"value is null":      {"tracing_config: {queue_bytes: null, sampling_ratio: ~}", ""},
		"yes":                {"tracing_config: {enabled: yes}", `1:27: tracing_config.enabled: the text "yes"; want true or false`},
		"quoted number":      {`tracing_config: {sampling_ratio: "0.5"}`, `1:34: tracing_config.sampling_ratio: the text "0.5"; want a number, without quotes`},
		"number for text":    {"name: 5", "1:7: name: the number 5; want a text"},
		"fraction":           {"http_options: {port: 80.5}", "1:22: http_options.port: the number 80.5; want a whole number, without quotes"},
		"beyond 64 bits":     {"http_options: {port: 99999999999999999999}", "1:22: http_options.port: the number 99999999999999999999; want a whole number, without quotes"},
		"bare duration":      {"tracing_config: {batch_age: 200}", "1:29: tracing_config.batch_age: the number 200; want a duration with its unit, such as 200ms, 10s or 1m30s"},
		"seconds with unit":  {"http_options: {request_timeout_s: 5s}", `1:35: http_options.request_timeout_s: the text "5s"; want a number of seconds, zero or more, without a unit`},
		"no seconds":         {"http_options: {keep_alive_timeout_s: 0}", "1:38: http_options.keep_alive_timeout_s: the number 0; want a number of seconds above zero, without a unit"},
		"negative":           {"http_options: {request_timeout_s: -1}", "1:35: http_options.request_timeout_s: the number -1; want a number of seconds, zero or more, without a unit"},
		"not a number":       {"http_options: {request_timeout_s: .nan}", "1:35: http_options.request_timeout_s: the number .nan; want a number of seconds, zero or more, without a unit"},
		"mapping of targets": {"call_options: {remote: {Model: \"dns:///model:9100\"}}", `1:24: call_options.remote: a mapping; want a list of texts, such as ["Model=dns:///model:9100"], or one text`},
		"list with a number": {"tracing_config: {exporter_plugin: [a, 1]}", "1:35: tracing_config.exporter_plugin: a list; want a text, or a list of texts"},
		"level":              {"logging_config: {log_level: loud}", `1:29: logging_config.log_level: the text "loud"; want one of DEBUG, INFO, WARNING, ERROR, NONE`},
		"long value":         {"name: [" + strings.Repeat("x", 99) + "]", "1:7: name: a list; want a text"},
		"long text":          {"tracing_config: {enabled: " + strings.Repeat("x", 99) + "}", `1:27: tracing_config.enabled: the text "` + strings.Repeat("x", 60) + `…"; want true or false`},
		"plugin's name":      {"tracing_config: {plugins: {a b: {}}}", `1:28: tracing_config.plugins: the text "a b" is no name of a plugin; want letters, digits, dots, dashes and underscores, 63 at most`},
		"plugin's key":       {"tracing_config: {plugins: {a: {limit: {}}}}", `1:32: tracing_config.plugins.a: there is no key "limit"; did you mean limits?`},
		"document's key":     {"tracing_config: {plugins: {a: {config: {b: [{c: 1, c: 2}]}}}}", "1:52: tracing_config.plugins.a.config.b[0].c: this key stands in line 1 already"},
		"document's alias":   {"tracing_config: {plugins: {a: {config: {b: &x 1, c: [*x]}}}}", "1:54: tracing_config.plugins.a.config.c[0]: " + noAlias},
		"function":           {"tracing_config: {exporter_import_path: exporter}", `1:40: tracing_config.exporter_import_path: the text "exporter"; want a function in Python, such as exporter:default_tracing_exporter`},
		"function, pinned":   {"tracing_config: {exporter_import_path: 'exporter:f@sha256:ab'}", `1:40: tracing_config.exporter_import_path: the text "exporter:f@sha256:ab"; want a function in Python, such as exporter:default_tracing_exporter`},
		"TLS":                {"http_options: {ssl_certfile: c.pem}", "1:16: http_options.ssl_certfile: " + noTLS},
		"nothing of Ray's":   {"http_options: {root_path: '', ssl_certfile: null, middlewares: []}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := "<nil>"
			if c.want != "" {
				want = "serve.yaml:" + c.want
			}
			if got := fmt.Sprint(Parse("serve.yaml", []byte(c.text), unset).Err()); got != want {
				t.Errorf("error\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// An alias bomb is refused where it is written, and nothing expands it.
func TestAliasBomb(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("tracing_config:\n  plugins:\n    p:\n      config:\n        a0: &a0 [x]\n")
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&text, "        a%d: &a%[1]d [*a%d, *a%[2]d]\n", i, i-1)
	}
	f := Parse("serve.yaml", []byte(text.String()), unset)
	if n := len(Leaves(f.Err())); n != 120 || f.Document("p", "") != nil {
		t.Errorf("%d faults, want one for each alias, and no document", n)
	}
}

// All faults are reported at once, in the order of the file, and the valid settings are
// kept.
func TestAllFaultsAtOnce(t *testing.T) {
	f := Parse("f", []byte("http_options: {prot: 1, host: h}\ntracing_config:\n  enabled: 1\n  queue_bytes: 5MiB\nname: 2\n"), unset)
	want := `f:1:16: http_options: there is no key "prot"; did you mean port?
f:3:12: tracing_config.enabled: the number 1; want true or false
f:5:7: name: the number 2; want a text`
	if got := fmt.Sprint(f.Err()); got != want {
		t.Errorf("error\n%s\nwant\n%s", got, want)
	}
	getenv := f.Getenv
	if getenv("SERVE_HTTP_HOST") != "h" || getenv("SERVE_TRACING_QUEUE_BYTES") != "5MiB" {
		t.Error("what is right has gone with what is wrong")
	}
}

// The file of the Anyscale guide is accepted. Keys that only a cluster needs are reported.
func TestGuidesFile(t *testing.T) {
	f := Parse("s.yaml", []byte(`name: default-tracing-service
working_dir: https://example.org/main.zip
image_uri: anyscale/ray:2.40.0-slim-py310
requirements:
- opentelemetry-api==1.26.0
applications:
- route_prefix: '/'
  import_path: default_serve_hello:app
  runtime_env: {}
tracing_config:
  enabled: True
  sampling_ratio: 1.0
logging_config: {logs_dir: /var/log, log_level: WARNING, additional_log_standard_attrs: null}
`), unset)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"s.yaml:2:1: working_dir has no effect: " + appsAreCode,
		"s.yaml:3:1: image_uri has no effect: " + onCluster,
		"s.yaml:4:1: requirements has no effect: " + appsAreCode,
		"s.yaml:8:3: applications[0].import_path has no effect: " + appsAreCode,
		"s.yaml:13:18: logging_config.logs_dir has no effect: " + onLog,
	}
	if diff := cmp.Diff(want, f.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	getenv := f.Getenv
	got := []string{getenv("OTEL_SERVICE_NAME"), getenv(EnvPlugins), getenv("SERVE_TRACING_SAMPLING_RATIO"), getenv("OTEL_LOG_LEVEL")}
	if diff := cmp.Diff([]string{"default-tracing-service", "console", "1", "warn"}, got); diff != "" || !f.SpanFiles() {
		t.Errorf("span files %v, values (-want +got):\n%s", f.SpanFiles(), diff)
	}
}

// A configuration comes out unchanged except for comments: texts stay texts, numbers stay
// numbers, and each is in its line of the file.
func TestDocument(t *testing.T) {
	f := Parse("s.yaml", []byte(`tracing_config:
  plugins:
    mine:
      # a comment
      config:
        text: "1"
        bare: 1     # the number
        octal: 0o17
        yes: yes
        date: 2024-01-01
        ref: ${env:TOKEN}
        quoted: '${file:/run/x}'
        lines: |2
            two
          one
        list: [1.50, null, {a: true}]
        tagged: !!str 5
    other: {limits: {}}
`), unset)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("\n", 5) + `{"text": "1",
"bare": 1,
"octal": 0o17,
"yes": "yes",
"date": 2024-01-01,
"ref": "${env:TOKEN}",
"quoted": "${file:/run/x}",
"lines": "  two\none\n",


"list": [1.50, null, {"a": true}],
"tagged": !!str 5}
`
	if diff := cmp.Diff(want, string(f.Document("mine", ""))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f.Document("other", "") != nil || f.Document("nobody", "") != nil {
		t.Error("a plugin without a document has one")
	}
}

func TestOutputIsPutIn(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"none":     {"", `{"exporter": {"output": "/spans"}}` + "\n"},
		"null":     {"config: null", `{"exporter": {"output": "/spans"}}` + "\n"},
		"others":   {"config: {processors: []}", `{"processors": [], "exporter": {"output": "/spans"}}` + "\n"},
		"exporter": {"config: {exporter: {format: json}}", `{"exporter": {"format": "json", "output": "/spans"}}` + "\n"},
		"its own":  {"config: {exporter: {output: stdout}}", `{"exporter": {"output": "stdout"}}` + "\n"},
		"a list":   {"config: []", "[]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Parse("s.yaml", []byte("tracing_config: {plugins: {console: {"+c.config+"}}}"), unset)
			if err := f.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(f.Document("console", "/spans"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := f.HasOutput("console"); got != (name == "its own") {
				t.Errorf("it has an output: %v", got)
			}
		})
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want string
	}{
		{write("most", strings.Repeat("#", yamlfile.MaxBytes)), ""},
		{write("more", strings.Repeat("#", yamlfile.MaxBytes+1)), "it has 1048577 bytes, want 1048576 at most"},
		{pipe, "this is no regular file (p---------); name a regular file"},
		{filepath.Join(dir, "nosuch"), "there is no such file; create it, or correct its path"},
		{"/dev/zero", "this is no regular file (Dc---------); name a regular file"},
	} {
		want := "<nil>"
		if c.want != "" {
			want = fmt.Sprintf("service file %q: %s", c.path, c.want)
		}
		if _, err := Read(c.path); fmt.Sprint(err) != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// FuzzParse: each fault of any file has a place in it, and the accepted settings are the
// same after they were written and read again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "name: a", "tracing_config: {enabled: true, plugins: {p: {config: {a: [1, '2', {b: !!binary aGk=}]}}}}",
		"tracing_config:\n  plugins:\n    p:\n      config: |2\n         x\n        y\n", "a: &a [*a]", "? {a: b}\n: c", "a: b\n--- \nc", "\ttab: 1",
		"http_options: {port: 0x50, request_timeout_s: 1e3}\n", "%YAML 1.1\n---\nname: x\n", "tracing_config: {plugins: {p: {config: \"\\x01\\u2028\"}}}",
		"tracing_config: {plugins: {p: {config: {a: }}}}",
		"applications: [{name: a, deployments: [{name: D, num_replicas: 2, user_config: {a: [1.5, x, null, ~, 0x1, .nan, {b: 2020-01-01}]}}]}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := Parse("f", data, unset)
		lines := 2 // as YAML counts lines, or a few more: the end of the file has a line
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += strings.Count(string(data), end)
		}
		for _, err := range Leaves(file.Err()) {
			fault, ok := errors.AsType[*FaultError](err)
			if !ok || fault.Line < 1 || fault.Line > lines || fault.Column < 1 || fault.Text == "" {
				t.Fatalf("fault %v of %d lines", err, lines)
			}
		}
		for _, name := range file.Plugins() {
			document := file.Document(name, "")
			if document == nil {
				continue
			}
			var again yaml.Node
			if err := yaml.Load(document, &again); err != nil {
				t.Fatalf("document of %q cannot be read: %v\n%s", name, err, document)
			}
			if want, got := flat(file.config(name)), flat(again.Content[0]); !slices.Equal(want, got) {
				t.Fatalf("document of %q is\n%q\nwant\n%q\n%s", name, got, want, document)
			}
		}
		for _, app := range file.Apps {
			for _, d := range app.Deployments {
				if d.UserConfig != nil && !json.Valid(d.UserConfig) {
					t.Fatalf("the user config %s is no JSON", d.UserConfig)
				}
			}
		}
		file.Getenv("SERVE_TRACING_PLUGIN_ENV")
		file.Settings()
	})
}

// flat is all that a tree means.
func flat(node *yaml.Node) []string {
	list := []string{fmt.Sprint(node.Kind, " ", node.ShortTag(), " ", node.Value)}
	if isNull(node) { // which is written in several ways
		list = []string{"null"}
	}
	for _, child := range node.Content {
		list = append(list, flat(child)...)
	}
	return append(list, "end")
}
