package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func getenv(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestConfigFromEnv(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want Config
	}{
		{"nothing", nil, Config{}},
		{"all of ours", map[string]string{
			EnvPlugins: " ./a,b ", EnvPluginDir: "/x:/y", EnvQueueBytes: "64MiB", EnvMaxSpanBytes: "512KiB",
			EnvBatchAge: "1s", EnvBatchSpans: "100", EnvBatchBytes: "65536", EnvExportTimeout: "3s", EnvMaxAge: "1m",
			EnvStartTimeout: "2s", EnvStopTimeout: "4s", "OTEL_SERVICE_NAME": "shop", "RAY_JOB_ID": "01000000",
		}, Config{
			Plugins: "./a,b", PluginDirs: []string{"/x", "/y"}, QueueBytes: 64 << 20, MaxSpanBytes: 512 << 10,
			BatchAge: time.Second, BatchSpans: 100, BatchBytes: 65536, ExportTimeout: 3 * time.Second, MaxAge: time.Minute,
			StartTimeout: 2 * time.Second, StopTimeout: 4 * time.Second, Context: Context{ServiceName: "shop", Job: "01000000"},
		}},
		{"OpenTelemetry's", map[string]string{
			envBSPScheduleDelay: "5000", envBSPMaxBatch: "512", envBSPExportTimeout: "30000",
		}, Config{BatchAge: 5 * time.Second, BatchSpans: 512, ExportTimeout: 30 * time.Second}},
		{"ours before OpenTelemetry's", map[string]string{
			envBSPScheduleDelay: "5000", EnvBatchAge: "1s", envBSPMaxBatch: "7", EnvBatchSpans: "9",
		}, Config{BatchAge: time.Second, BatchSpans: 9}},
		{"OpenTelemetry's beyond our bound", map[string]string{envBSPMaxBatch: "100000"}, Config{BatchSpans: mostBatchSpans}},
		{"switched off", map[string]string{EnvPlugins: "./a", envSDKDisabled: "TRUE"}, Config{}},
		{"no exporter wanted", map[string]string{EnvPlugins: "./a", envTracesExporter: "none"}, Config{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ConfigFromEnv(getenv(test.env))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrongSettings(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{EnvQueueBytes, "lots", `SERVE_TRACING_QUEUE_BYTES="lots": must be a number of bytes above zero, such as 1048576, 512KiB or 32MiB`},
		{EnvQueueBytes, "-1", `SERVE_TRACING_QUEUE_BYTES="-1": must be a number of bytes above zero, such as 1048576, 512KiB or 32MiB`},
		{EnvQueueBytes, "9999999GiB", `SERVE_TRACING_QUEUE_BYTES="9999999GiB": must be a number of bytes above zero, such as 1048576, 512KiB or 32MiB`},
		{EnvMaxSpanBytes, "4MiB", "SERVE_TRACING_MAX_SPAN_BYTES=4194304: must be between 1 and 3MiB"},
		{EnvBatchAge, "200", `SERVE_TRACING_BATCH_AGE="200": must be a duration above zero, such as 200ms or 10s`},
		{EnvBatchAge, "0s", `SERVE_TRACING_BATCH_AGE="0s": must be a duration above zero, such as 200ms or 10s`},
		{EnvBatchSpans, "many", `SERVE_TRACING_BATCH_SPANS="many": must be a whole number above zero`},
		{EnvBatchSpans, "70000", "SERVE_TRACING_BATCH_SPANS=70000: must be between 1 and 65536"},
		{envBSPScheduleDelay, "soon", `OTEL_BSP_SCHEDULE_DELAY="soon": must be a whole number`},
		{EnvPlugins, ",", `SERVE_TRACING_EXPORTER_PLUGIN: entry "": names no plugin; write a path or a name, or remove the comma` + "\n" +
			`SERVE_TRACING_EXPORTER_PLUGIN: entry "": names no plugin; write a path or a name, or remove the comma`},
	} {
		t.Run(test.name+"="+test.value, func(t *testing.T) {
			_, err := ConfigFromEnv(getenv(map[string]string{test.name: test.value}))
			if got := fmt.Sprint(err); got != test.want {
				t.Errorf("error\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	_, all := ConfigFromEnv(getenv(map[string]string{EnvBatchAge: "x", EnvQueueBytes: "3", EnvPlugins: "./a,./a"}))
	wantAll := `SERVE_TRACING_BATCH_AGE="x": must be a duration above zero, such as 200ms or 10s` + "\n" +
		"SERVE_TRACING_QUEUE_BYTES=3: must be 1MiB or more\n" +
		`SERVE_TRACING_EXPORTER_PLUGIN: entries "./a" and "./a" are both named "a"; write NAME=./a to name one of them`
	if got := fmt.Sprint(all); got != wantAll {
		t.Errorf("error\n%s\nwant\n%s", got, wantAll)
	}
	if _, err := ConfigFromEnv(getenv(map[string]string{EnvQueueBytes: "1MiB"})); err != nil {
		t.Errorf("a small queue alone: %v", err)
	}
	_, err := ConfigFromEnv(getenv(map[string]string{EnvQueueBytes: "1MiB", EnvMaxSpanBytes: "1MiB", EnvBatchBytes: "512KiB"}))
	want := "SERVE_TRACING_MAX_SPAN_BYTES=1048576: must be at most a quarter of SERVE_TRACING_QUEUE_BYTES\n" +
		"SERVE_TRACING_BATCH_BYTES=524288: must be at most a quarter of SERVE_TRACING_QUEUE_BYTES"
	if got := fmt.Sprint(err); got != want {
		t.Errorf("error\n%s\nwant\n%s", got, want)
	}
}

func TestParseList(t *testing.T) {
	for _, test := range []struct {
		list string
		want []entry
		err  string
	}{
		{"", nil, ""},
		{"console", []entry{{name: "console", where: "console"}}, ""},
		{"./bin/plugins/console , otlp", []entry{{name: "console", where: "./bin/plugins/console"}, {name: "otlp", where: "otlp"}}, ""},
		{"a=./x,b=./x", []entry{{name: "a", where: "./x"}, {name: "b", where: "./x"}}, ""},
		{"a=./with%2Ccomma%3Dequals%40at%20", []entry{{name: "a", where: "./with,comma=equals@at%20"}}, ""},
		{"./plugin.py", []entry{{name: "plugin", where: "./plugin.py"}}, ""},
		{"./a/p,./b/p", nil, `entries "./a/p" and "./b/p" are both named "p"; write NAME=./b/p to name one of them`},
		{"a=b=c", nil, `entry "a=b=c": has two equals signs; write one in a path as %3D`},
		{"unix:///run/x.sock", []entry{{name: "x", where: "unix:///run/x.sock", attached: true}}, ""},
		{"a=unix://./a%2Cb%3Dc%40d.sock", []entry{{name: "a", where: "unix://./a,b=c@d.sock", attached: true}}, ""},
		{"unix://run/x", nil, `entry "unix://run/x": the path of a socket must be absolute; write unix:///run/x, or unix://./run/x for one in the working folder`},
		{"unix://", nil, `entry "unix://": names no socket; write unix:///PATH`},
		{"unix:///run/", nil, `entry "unix:///run/": names no socket; write unix:///PATH`},
		{"unix:///x@sha256:ab", nil, `entry "unix:///x@sha256:ab": an address has no pin (@sha256:…): this host does not start what listens there; remove it, or write an at sign in a path as %40`},
		{"http://localhost:4317", nil, `entry "http://localhost:4317": is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable`},
		{"unix:/run/x.sock", nil, `entry "unix:/run/x.sock": is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable`},
		{"./p@sha256:ab", nil, `entry "./p@sha256:ab": a pin (@sha256:…) is not supported yet; write an at sign in a path as %40`},
		{"./plugins/", nil, `entry "./plugins/": a folder of plugins is not supported yet; name each executable`},
		{"we ird=./p", nil, `entry "we ird=./p": the name "we ird" must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH`},
	} {
		t.Run(test.list, func(t *testing.T) {
			got, err := parseList(test.list)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(entry{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := test.err
			if want != "" {
				want = "SERVE_TRACING_EXPORTER_PLUGIN: " + want
			}
			if err == nil && want != "" || err != nil && err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("a=./x@sha256:00,unix:///y,/z/")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseList(text)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, e := range list {
			if e.name == "" || e.where == "" || names[e.name] {
				t.Errorf("entry %+v of %q", e, text)
			}
			names[e.name] = true
		}
	})
}

func TestBareNamesAreLookedUp(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(second, "console"), filepath.Join(second, "both"), filepath.Join(first, "both")} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{first, second}
	for where, want := range map[string]string{
		"console":   filepath.Join(second, "console"),
		"both":      filepath.Join(first, "both"),
		"./console": "./console",
	} {
		got, err := entry{where: where}.resolve(dirs)
		if err != nil || got != want {
			t.Errorf("resolve %q = %q, %v; want %q", where, got, err, want)
		}
	}
	_, err := entry{where: "nosuch"}.resolve(dirs)
	want := fmt.Sprintf(`there is no plugin "nosuch" in %s, %s; build it there, write its path, or set SERVE_TRACING_PLUGIN_DIR`, first, second)
	if fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestGrant(t *testing.T) {
	environ := []string{"DD_SITE=a", "DD_API_KEY=b=c", "DDX=no", "PATH=/bin", "LC_ALL=C", "https_proxy=p", "AWS_SECRET=no", "LATIN_1=\xe4"}
	for _, test := range []struct {
		patterns []string
		want     map[string]string
		err      string
	}{
		{nil, map[string]string{}, ""},
		{[]string{"DD_*"}, map[string]string{"DD_SITE": "a", "DD_API_KEY": "b=c"}, ""},
		{[]string{"DD_SITE", "UNSET"}, map[string]string{"DD_SITE": "a"}, ""},
		{[]string{"LATIN_1"}, nil, `the plugin asks for variable "LATIN_1", whose value is no UTF-8 text`},
		{[]string{"*"}, nil, `the plugin asks for variables "*"`},
		{[]string{"D_*"}, nil, `the plugin asks for variables "D_*"`},
		{[]string{"DD*"}, nil, `the plugin asks for variables "DD*"`},
		{[]string{"DD_*_KEY"}, nil, `the plugin asks for variables "DD_*_KEY"`},
	} {
		t.Run(strings.Join(test.patterns, ","), func(t *testing.T) {
			got, err := grant(test.patterns, environ)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %s…", err, test.err)
			}
		})
	}
	cfg := Config{Environ: environ}
	if diff := cmp.Diff([]string{"PATH=/bin", "LC_ALL=C", "https_proxy=p"}, cfg.startEnviron("p")); diff != "" {
		t.Errorf("base environment (-want +got):\n%s", diff)
	}
}
