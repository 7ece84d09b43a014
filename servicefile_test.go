package servetrace

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/servicefile"
)

// env is an environment with these variables and no other.
func env(list ...string) func(string) string {
	return func(name string) string {
		for _, kv := range list {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// serviceFile writes a service file and returns its path.
func serviceFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// samples has for each key of the table a value that is not its default.
var samples = map[string]string{
	"name": "shop", "tracing_config.exporter_plugin": "[console, ./p]", "tracing_config.sampling_ratio": "0.25",
	"tracing_config.enabled": "true", "tracing_config.exporter_import_path": "exporter:spans", "tracing_config.python": "/opt/python",
	"tracing_config.trust_inbound": "false", "tracing_config.semconv": "dup", "tracing_config.plugin_dir": "[/a, /b]",
	"tracing_config.queue_bytes": "8MiB", "tracing_config.max_span_bytes": "4096", "tracing_config.batch_age": "1s",
	"tracing_config.batch_spans": "10", "tracing_config.batch_bytes": "1KiB", "tracing_config.export_timeout": "1s",
	"tracing_config.max_age": "1s", "tracing_config.start_timeout": "1s", "tracing_config.stop_timeout": "1s",
	"tracing_config.start_jitter": "1s", "tracing_config.plugin_watch": "1s", "tracing_config.plugin_writable": "allow",
	"tracing_config.lockdown": "true", "tracing_config.crash_dir": "/crashes",
	"tracing_config.spool_dir": "/spool", "tracing_config.spool_bytes": "16MiB",
	"tracing_config.plugins.NAME.config": "{a: 1}", "tracing_config.plugins.NAME.env": "[AWS_*, X_TOKEN]",
	"tracing_config.plugins.NAME.limits.memory": "64MiB", "tracing_config.plugins.NAME.limits.max_procs": "2",
	"http_options.host": "0.0.0.0", "http_options.port": "1", "http_options.request_timeout_s": "1.5",
	"http_options.keep_alive_timeout_s": "2", "http_options.graceful_shutdown_timeout_s": "3",
	"http_options.min_draining_period_s": "5", "http_options.backpressure_status_code": "429", "http_options.backpressure_retry_after_s": "2.5", "http_options.read_header_timeout_s": "4", "http_options.stall_timeout_s": "0", "http_options.max_header_bytes": "5000",
	"grpc_options.host": "0.0.0.0", "grpc_options.port": "1", "grpc_options.request_timeout_s": "1.5",
	"grpc_options.max_message_bytes": "2000", "grpc_options.max_streams": "7", "grpc_options.max_header_bytes": "5000",
	"grpc_options.stall_timeout_s": "0", "grpc_options.connection_timeout_s": "2",
	"grpc_options.keepalive_time_s": "3", "grpc_options.keepalive_min_time_s": "4",
	"logging_config.log_level": "DEBUG", "logging_config.encoding": "JSON", "logging_config.enable_access_log": "false",
	"call_options.remote": "[\"D=static:///h:1\"]", "call_options.deployments": "[D]", "call_options.addr": "127.0.0.1:0",
	"call_options.max_message_bytes": "2000", "call_options.max_streams": "7",
	"call_options.tls_cert": "c", "call_options.tls_key": "k", "call_options.tls_ca": "a", "call_options.tls_ids": "[spiffe://a/b]",
	"admin.host": "0.0.0.0", "admin.port": "0", "admin.pprof": "true", "admin.capture": "true", "admin.traces": "false",
	"tracing_config.processor_plugin": "redactor", "tracing_config.plugins.NAME.processors": "[tenant]", "tracing_config.plugins.NAME.fail": "open",
	"applications[].name": "a", "applications[].route_prefix": "/a", "applications[].deployments[].name": "D",
	"applications[].deployments[].num_replicas": "3", "applications[].deployments[].max_ongoing_requests": "3",
	"applications[].deployments[].max_queued_requests": "3", "applications[].deployments[].user_config": "{a: [1, b]}",
	"applications[].deployments[].graceful_shutdown_wait_loop_s": "1", "applications[].deployments[].graceful_shutdown_timeout_s": "1",
	"applications[].deployments[].health_check_period_s": "1", "applications[].deployments[].health_check_timeout_s": "1",
}

// oneKey is a file with one key.
func oneKey(path, value string) string {
	words := strings.Split(strings.ReplaceAll(path, "NAME", "p"), ".")
	text := words[len(words)-1] + ": " + value
	for _, word := range slices.Backward(words[:len(words)-1]) {
		list, is := strings.CutSuffix(word, "[]")
		switch {
		case !is:
			text = word + ": {" + text + "}"
		case list == "deployments" && !strings.HasPrefix(text, "name: "):
			text = list + ": [{name: D, " + text + "}]"
		default:
			text = list + ": [{" + text + "}]"
		}
	}
	return text
}

// Each key of the table changes a setting, like its variable. Package relay tests its
// own keys.
func TestEveryKeyHasAnEffect(t *testing.T) {
	vars := map[string]string{"admin.host": "SERVE_ADMIN_PORT=1"} // without which it has none
	for _, k := range servicefile.Keys() {
		if strings.HasPrefix(k.Path, "relay.") {
			continue
		}
		t.Run(k.Path, func(t *testing.T) {
			value, ok := samples[k.Path]
			if !ok {
				t.Fatal("there is no sample")
			}
			got, byDefault := show(t, oneKey(k.Path, value), vars[k.Path]), show(t, "{}", vars[k.Path])
			if got == byDefault {
				t.Errorf("%s: %s changes nothing", k.Path, value)
			}
		})
	}
}

// show is the Config of a file in an environment with one variable, as text.
func show(t *testing.T, text, variable string) string {
	t.Helper()
	cfg, err := LoadConfigFile(serviceFile(t, text), env("RAY_JOB_ID=00000001", variable))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cfg.Host.PluginConfigs { // a function has no text
		document, err := c.Pick([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Host.PluginConfigs[name] = host.PluginConfig{Document: document}
	}
	cfg.File, cfg.Host.PythonDir = "", ""
	return fmt.Sprintf("%+v", cfg)
}

// A value that is of the right type and wrong all the same is a fault at its
// place, in the words of the file.
func TestWrongValues(t *testing.T) {
	for path, c := range map[string]struct{ value, want string }{
		"tracing_config.exporter_plugin":      {"a=b=c", `: entry "a=b=c": has two equals signs; write one in a path as %3D`},
		"tracing_config.sampling_ratio":       {"1.5", `="1.5": want a number from 0 to 1`},
		"tracing_config.exporter_import_path": {strings.Repeat("x", 64) + ":spans", `: entry "python:` + strings.Repeat("x", 64) + `:spans": the name "` + strings.Repeat("x", 64) + `" must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH, and a comma between plugins`},
		"tracing_config.semconv":              {"Ray", `="Ray": want ray, stable or dup`},
		"tracing_config.queue_bytes":          {"12KB", `="12KB": want a number of bytes from 1 to 1024GiB, such as 1048576, 512KiB or 32MiB`},
		"tracing_config.max_span_bytes":       {"4MiB", `=4194304: want between 1 and 3MiB`},
		"tracing_config.batch_bytes":          {"4MiB", `=4194304: want between 1 and 3MiB`},
		"tracing_config.batch_spans":          {"0", `="0": want a whole number from 1 to 2147483647`},
		"tracing_config.stop_timeout":         {"never", `="never": want a duration above zero, such as 200ms or 10s`},
		"tracing_config.plugin_writable":      {"maybe", `="maybe": want refuse or allow`},
		"tracing_config.plugins.NAME.env": {"[X*]",
			`: entry "p:X*": variables "X*": must be a name, or a prefix of three characters or more that ends in an underscore, and a star`},
		"tracing_config.plugins.NAME.limits.memory":    {"1 MB", `: entry "p=1 MB": "1 MB" must be a number of bytes from 1 to 1024GiB, such as 64MiB`},
		"tracing_config.plugins.NAME.limits.max_procs": {"0", `: entry "p=0": "0" must be a whole number from 1 to 65536`},
		"http_options.port":                            {"70000", `="70000": want a whole number from 0 to 65535`},
		"grpc_options.max_message_bytes":               {"1", `="1": want a whole number from 1024 to 2147483647`},
		"grpc_options.max_streams":                     {"0", `="0": want a whole number from 1 to 2147483647`},
		"http_options.max_header_bytes":                {"1", `="1": want a whole number from 4096 to 16777216`},
	} {
		t.Run(path, func(t *testing.T) {
			text := oneKey(path, c.value)
			file := serviceFile(t, text)
			_, err := LoadConfigFile(file, env())
			want := fmt.Sprintf("%s:1:%d: %s%s", file, 1+strings.LastIndex(text, ": ")+2, strings.ReplaceAll(path, "NAME", "p"), c.want)
			if fmt.Sprint(err) != want {
				t.Errorf("error\n%v\nwant\n%s", err, want)
			}
		})
	}
}

// Blanks around a value count neither in the environment nor in the file.
func TestBlanksAreIgnored(t *testing.T) {
	for _, setting := range []string{
		"SERVE_TRACING_QUEUE_BYTES=8MiB", "SERVE_TRACING_STOP_TIMEOUT=7s", "SERVE_TRACING_BATCH_SPANS=100",
		"SERVE_TRACING_LOCKDOWN=false", "SERVE_TRACING_PLUGIN_GOMAXPROCS=2", "SERVE_TRACING_PLUGIN_GOMEMLIMIT=8MiB",
		"SERVE_TRACING_SAMPLING_RATIO=0.5", "SERVE_HTTP_PORT=8123", "SERVE_REQUEST_TIMEOUT=5s", "SERVE_ACCESS_LOG=false",
		"SERVE_BACKPRESSURE_STATUS=429", "SERVE_GRPC_MAX_STREAMS=5", "SERVE_ADMIN_PORT=8124", "SERVE_LOG_FORMAT=json",
	} {
		t.Run(setting, func(t *testing.T) {
			blanks := strings.Replace(setting, "=", "= ", 1) + "\t"
			if got, want := show(t, "{}", blanks), show(t, "{}", setting); got != want {
				t.Errorf("settings\n%s\nwant\n%s", got, want)
			}
		})
	}
	for _, key := range []string{"tracing_config.queue_bytes: 8MiB", "tracing_config.stop_timeout: 7s"} {
		t.Run(key, func(t *testing.T) {
			path, value, _ := strings.Cut(key, ": ")
			if got, want := show(t, oneKey(path, `" `+value+` "`), ""), show(t, oneKey(path, value), ""); got != want {
				t.Errorf("settings\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Values that exclude each other, and missing plugins, are errors of the file, too.
// Errors of the environment name the environment.
func TestFaultsOfValuesTogether(t *testing.T) {
	file := serviceFile(t, `tracing_config:
  exporter_plugin: console,unix:///run/d.sock
  queue_bytes: 1MiB
  max_span_bytes: 1MiB
  batch_bytes: 12KB
  plugins:
    consol: {config: {a: 1}}
    d: {limits: {max_procs: 1}}
http_options:
  prot: 80
`)
	_, err := LoadConfigFile(file, env("SERVE_REQUEST_TIMEOUT=soon", "SERVE_HTTP_PORT=x"))
	want := strings.ReplaceAll(`FILE:4:19: tracing_config.max_span_bytes=1048576: want at most a quarter of tracing_config.queue_bytes
FILE:5:16: tracing_config.batch_bytes="12KB": want a number of bytes from 1 to 1024GiB, such as 1048576, 512KiB or 32MiB
FILE:7:5: tracing_config.plugins.consol: there is no plugin "consol"; the plugins of tracing_config.exporter_plugin are console, d
FILE:8:5: tracing_config.plugins.d: plugin "d" is attached to (unix:///run/d.sock): this host does not configure it; give the file to the plugin itself (--config)
FILE:10:3: http_options: there is no key "prot"; did you mean port?
SERVE_REQUEST_TIMEOUT="soon": want a duration of zero or more, such as 30s or 1m30s
SERVE_HTTP_PORT="x": want a whole number from 0 to 65535`, "FILE", file)
	if fmt.Sprint(err) != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
}

// Which plugins run: the environment's word, then the file's switch, then the
// file's list.
func TestSwitch(t *testing.T) {
	const set, off = "SERVE_TRACING_EXPORTER_PLUGIN=env", "OTEL_SDK_DISABLED=true"
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file    string
		env     []string
		plugins string
		folder  string
	}{
		{"", nil, "", ""},
		{"", []string{set}, "env", ""},
		{"exporter_plugin: file", nil, "file", ""},
		{"exporter_plugin: file", []string{set}, "env", ""},
		{"enabled: true", nil, "console", "/home/u/.local/state/servetrace/spans"},
		{"enabled: true", []string{"XDG_STATE_HOME=/state"}, "console", "/state/servetrace/spans"},
		{"enabled: true", []string{"HOME="}, "console", filepath.Join(here, "servetrace-spans")},
		{"enabled: true", []string{"SERVE_CONSOLE_OUTPUT=stdout"}, "console", ""},
		{"enabled: true", []string{"SERVE_TRACING_PLUGIN_CONFIG=console=x.yaml"}, "console", ""},
		{"enabled: true, plugins: {console: {config: {exporter: {output: stdout}}}}", nil, "console", ""},
		{"enabled: true, exporter_plugin: ''", nil, "console", "/home/u/.local/state/servetrace/spans"},
		{"enabled: true", []string{set}, "env", ""},
		{"enabled: true", []string{"SERVE_TRACING_EXPORTER_PLUGIN=console"}, "console", ""},
		{"enabled: true", []string{off}, "", ""},
		{"enabled: true, exporter_plugin: file", nil, "file", ""},
		{"enabled: true, exporter_plugin: file", []string{set}, "env", ""},
		{"enabled: true, exporter_plugin: file", []string{off}, "", ""},
		{"enabled: true, exporter_plugin: file", []string{"OTEL_TRACES_EXPORTER=none"}, "", ""},
		{"enabled: true, exporter_import_path: exporter:spans", nil, "python:exporter:spans", ""},
		{"enabled: true, exporter_import_path: exporter.spans", nil, "python:exporter.spans", ""},
		{"enabled: true, exporter_import_path: exporter:spans", []string{set}, "env", ""},
		{"enabled: false, exporter_import_path: exporter:spans", nil, "", ""},
		{"exporter_plugin: file, exporter_import_path: exporter:spans", nil, "file,python:exporter:spans", ""},
		{"enabled: true, exporter_import_path: ''", nil, "console", "/home/u/.local/state/servetrace/spans"},
		{"enabled: true, exporter_import_path: null", nil, "console", "/home/u/.local/state/servetrace/spans"},
		{"enabled: false", nil, "", ""},
		{"enabled: false", []string{set}, "env", ""},
		{"enabled: false, exporter_plugin: file", nil, "", ""},
		{"enabled: false, exporter_plugin: file", []string{set}, "env", ""},
		{"enabled: false, exporter_plugin: file", []string{set, off}, "", ""},
	} {
		t.Run(c.file+" "+strings.Join(c.env, " "), func(t *testing.T) {
			cfg, err := LoadConfigFile(serviceFile(t, "tracing_config: {"+c.file+"}"), env(append(c.env, "HOME=/home/u")...))
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Tracing.DisabledBy == "" && cfg.Host.Plugins != c.plugins || cfg.SpanFolder != c.folder {
				t.Errorf("plugins %q, folder %q; want %q, %q", cfg.Host.Plugins, cfg.SpanFolder, c.plugins, c.folder)
			}
		})
	}
}

// Modules of exporter functions are beside the service file.
func TestFolderOfFunctions(t *testing.T) {
	file := serviceFile(t, "tracing_config: {exporter_import_path: exporter:spans, plugins: {exporter: {env: [API_KEY]}}}")
	t.Chdir(filepath.Dir(filepath.Dir(file)))
	relative := filepath.Join(filepath.Base(filepath.Dir(file)), "serve.yaml")
	cfg, err := LoadConfigFile(relative, env())
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Dir(file); cfg.Host.PythonDir != want {
		t.Errorf("PythonDir %q, want %q", cfg.Host.PythonDir, want)
	}
	if diff := cmp.Diff(map[string][]string{"exporter": {"API_KEY"}}, cfg.Host.PluginEnv); diff != "" {
		t.Errorf("PluginEnv (-want +got):\n%s", diff)
	}
}

// A folder of span files that cannot be made is a warning with the setting to change,
// because the service file has no key for it.
func TestSpanFolderThatCannotBeMade(t *testing.T) {
	file := serviceFile(t, "tracing_config: {enabled: true}")
	p := startProc(t, "SERVE_CONFIG="+file, "HOME="+file)
	p.log.await(t, `level=WARN msg="cannot create the folder for span files; set a writable folder with SERVE_CONSOLE_OUTPUT, or set XDG_STATE_HOME or HOME" span_files=`+file+`/.local/state/servetrace/spans error=`)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

// Environment over file over default, for each key that has a variable.
func TestEnvironmentGoesOverTheFile(t *testing.T) {
	text := `name: file
tracing_config: {exporter_plugin: "a,b,c", sampling_ratio: 0.5, batch_age: 1s, batch_spans: 7, export_timeout: 2s,
  plugins: {a: {config: {from: file}, env: [X_FILE], limits: {memory: 1MiB}},
            b: {config: {from: file}, env: [X_FILE], limits: {memory: 1MiB}}}}
`
	load := func(vars ...string) Config {
		cfg, err := LoadConfigFile(serviceFile(t, text), env(vars...))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	file := load()
	if file.Tracing.Ratio != 0.5 || file.Tracing.ServiceName() != "file" || file.Host.BatchSpans != 7 || len(file.Host.PluginConfigs) != 2 {
		t.Errorf("the file alone: %+v", file)
	}
	cfg := load("OTEL_SERVICE_NAME=env", "SERVE_TRACING_SAMPLING_RATIO=1", "SERVE_TRACING_BATCH_SPANS=9")
	if cfg.Tracing.ServiceName() != "env" || cfg.Tracing.Ratio != 1 || cfg.Host.BatchSpans != 9 {
		t.Errorf("with the same variables: %+v", cfg)
	}
	// OpenTelemetry's variables are the environment's word as well.
	cfg = load("OTEL_RESOURCE_ATTRIBUTES=service.name=env", "OTEL_TRACES_SAMPLER=always_off", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=9",
		"OTEL_BSP_SCHEDULE_DELAY=5", "OTEL_BSP_EXPORT_TIMEOUT=6")
	if cfg.Tracing.ServiceName() != "env" || cfg.Tracing.Sampler != "always_off" || cfg.Host.BatchSpans != 9 ||
		cfg.Host.BatchAge.Milliseconds() != 5 || cfg.Host.ExportTimeout.Milliseconds() != 6 {
		t.Errorf("with OpenTelemetry's variables: %+v", cfg)
	}
	// Settings by plugin are merged for each plugin.
	cfg = load("SERVE_TRACING_PLUGIN_CONFIG=a=a.yaml", "SERVE_TRACING_PLUGIN_ENV=b:X_ENV,*:X_ALL", "SERVE_TRACING_PLUGIN_GOMEMLIMIT=a=2MiB")
	if cfg.Host.PluginConfigs["a"].File != "a.yaml" || cfg.Host.PluginConfigs["b"].Pick == nil {
		t.Errorf("documents: %+v", cfg.Host.PluginConfigs)
	}
	wantEnv := map[string][]string{"a": {"X_FILE"}, "b": {"X_ENV"}, "*": {"X_ALL"}}
	if diff := cmp.Diff(wantEnv, cfg.Host.PluginEnv); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"a": 2 << 20, "b": 1 << 20}, cfg.Host.PluginMemoryLimit); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	cfg = load("SERVE_TRACING_PLUGIN_GOMEMLIMIT=3MiB")
	if diff := cmp.Diff(map[string]int64{"": 3 << 20}, cfg.Host.PluginMemoryLimit); diff != "" {
		t.Errorf("memory of all (-want +got):\n%s", diff)
	}
	// A list of the environment need not have all plugins of the file.
	cfg = load("SERVE_TRACING_EXPORTER_PLUGIN=b,x")
	if names := slices.Sorted(maps.Keys(cfg.Host.PluginConfigs)); !slices.Equal(names, []string{"b"}) {
		t.Errorf("documents for %q", names)
	}
	want := cfg.File + `:3:13: tracing_config.plugins.a: there is no plugin "a"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are b, x`
	if diff := cmp.Diff([]string{want}, cfg.Tracing.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// The path is the caller's, else the value of SERVE_CONFIG, else there is no file.
func TestWhichFile(t *testing.T) {
	one, two := serviceFile(t, "http_options: {port: 1}"), serviceFile(t, "http_options: {port: 2}")
	for _, c := range []struct{ path, variable, want string }{
		{"", "", ""}, {"", two, "127.0.0.1:2"}, {one, two, "127.0.0.1:1"}, {one, "", "127.0.0.1:1"},
	} {
		cfg, err := LoadConfigFile(c.path, env("SERVE_CONFIG="+c.variable))
		if cfg.Serving.HTTPAddr != c.want || err != nil {
			t.Errorf("path %q, variable %q: %q, %v; want %q", c.path, c.variable, cfg.Serving.HTTPAddr, err, c.want)
		}
	}
	_, err := LoadConfigFile("", env("SERVE_CONFIG=/nowhere/serve.yaml"))
	if want := `service file "/nowhere/serve.yaml": there is no such file; create it, or correct its path`; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// A service with the file alone: the console plugin writes span files.
func TestEnabledAloneWritesSpanFiles(t *testing.T) {
	state := t.TempDir()
	file := serviceFile(t, "name: shop\ntracing_config: {enabled: true}\napplications: []\n")
	p := startProc(t, "SERVE_CONFIG="+file, "XDG_STATE_HOME="+state)
	folder := filepath.Join(state, "servetrace", "spans")
	if log := p.log.String(); !strings.Contains(log, "file="+file) || !strings.Contains(log, "span_files="+folder) {
		t.Errorf("the log names neither file nor folder:\n%s", log)
	}
	if status, _ := get(t, p.url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*_tracing.json"))
	if err != nil || len(files) != 2 { // of the proxy and of one replica
		t.Errorf("span files %q, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name) //nolint:gosec // of the test's own folder
		if err != nil || !strings.Contains(string(text), `"service.name": "shop"`) {
			t.Errorf("%s has %q, %v", name, text, err)
		}
	}
	for _, dir := range []string{folder, filepath.Dir(folder)} { // nobody has chosen who else may read them
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want mode 0700", dir, info, err)
		}
	}
	if p.stdout.Len() > 0 {
		t.Errorf("spans on standard output:\n%s", p.stdout.String())
	}
}

// The plugin gets its document, and a new one after the file has changed.
func TestDocumentIsReadAnew(t *testing.T) {
	text := "tracing_config: {exporter_plugin: console, plugins: {console: {config: {exporter: {output: %s}}}}}\n"
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	file := serviceFile(t, fmt.Sprintf(text, first))
	cfg, err := LoadConfigFile(file, env())
	if err != nil {
		t.Fatal(err)
	}
	pick := cfg.Host.PluginConfigs["console"].Pick
	for _, c := range []struct{ text, document, err string }{
		{fmt.Sprintf(text, first), `{"exporter": {"output": "` + first + `"}}` + "\n", "<nil>"},
		{fmt.Sprintf(text, second), `{"exporter": {"output": "` + second + `"}}` + "\n", "<nil>"},
		{"{}", "", "<nil>"},
		{"http_options: {port: 99999}", "", file + `:1:22: http_options.port="99999": want a whole number from 0 to 65535`},
		{"tracing_config: {exporter_plugin: console, plugins: {consul: {config: {}}}}", "",
			file + `:1:54: tracing_config.plugins.consul: there is no plugin "consul"; the plugins of tracing_config.exporter_plugin are console`},
		{"tracing_config: {enable: 1}", "", file + `:1:18: tracing_config: there is no key "enable"; did you mean enabled?`},
	} {
		document, err := pick([]byte(c.text))
		if string(document) != c.document || fmt.Sprint(err) != c.err {
			t.Errorf("%s: %q, %v; want %q, %s", c.text, document, err, c.document, c.err)
		}
	}
	p := startProc(t, "SERVE_CONFIG="+file)
	p.log.await(t, `msg="plugin is ready"`)
	if status, _ := get(t, p.url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	if files, _ := filepath.Glob(filepath.Join(first, "*.json")); len(files) == 0 {
		t.Errorf("no span files in %s\n%s", first, p.log)
	}
}
