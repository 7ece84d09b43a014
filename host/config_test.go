package host

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
			EnvCrashDir: "crashes", EnvPluginWritable: "Allow", EnvStartJitter: "3s", EnvPluginWatch: "5s",
			EnvPluginEnv: "*:HTTP_*, a:AWS_*,a:X", EnvPluginMemoryLimit: "64MiB,a=1GiB", EnvPluginMaxProcs: "b=2",
		}, Config{
			CrashDir: "crashes", AllowWritable: true, StartJitter: 3 * time.Second, Watch: 5 * time.Second,
			PluginEnv:         map[string][]string{"*": {"HTTP_*"}, "a": {"AWS_*", "X"}},
			PluginMemoryLimit: map[string]int64{"": 64 << 20, "a": 1 << 30}, PluginMaxProcs: map[string]int{"b": 2},

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
		{"lock-down without plugins", map[string]string{EnvLockdown: "True", EnvPluginDir: "/x"}, Config{Lockdown: true, PluginDirs: []string{"/x"}}},
		{"names of plugins that are switched off", map[string]string{
			EnvPlugins: "./a", envSDKDisabled: "true", EnvPluginEnv: "a:X", EnvPluginMaxProcs: "a=1",
		}, Config{PluginEnv: map[string][]string{"a": {"X"}}, PluginMaxProcs: map[string]int{"a": 1}}},
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
		{EnvQueueBytes, "lots", `SERVE_TRACING_QUEUE_BYTES="lots": want a number of bytes above zero, such as 1048576, 512KiB or 32MiB`},
		{EnvQueueBytes, "-1", `SERVE_TRACING_QUEUE_BYTES="-1": want a number of bytes above zero, such as 1048576, 512KiB or 32MiB`},
		{EnvQueueBytes, "9999999GiB", `SERVE_TRACING_QUEUE_BYTES="9999999GiB": want a number of bytes above zero, such as 1048576, 512KiB or 32MiB`},
		{EnvMaxSpanBytes, "4MiB", "SERVE_TRACING_MAX_SPAN_BYTES=4194304: want between 1 and 3MiB"},
		{EnvBatchAge, "200", `SERVE_TRACING_BATCH_AGE="200": want a duration above zero, such as 200ms or 10s`},
		{EnvBatchAge, "0s", `SERVE_TRACING_BATCH_AGE="0s": want a duration above zero, such as 200ms or 10s`},
		{EnvBatchSpans, "many", `SERVE_TRACING_BATCH_SPANS="many": want a whole number above zero`},
		{EnvBatchSpans, "70000", "SERVE_TRACING_BATCH_SPANS=70000: want between 1 and 65536"},
		{envBSPScheduleDelay, "soon", `OTEL_BSP_SCHEDULE_DELAY="soon": want a whole number`},
		{EnvLockdown, "maybe", `SERVE_TRACING_LOCKDOWN="maybe": want true or false`},
		{EnvPluginWritable, "true", `SERVE_TRACING_PLUGIN_WRITABLE="true": want refuse or allow`},
		{EnvStartJitter, "0", `SERVE_TRACING_START_JITTER="0": want a duration above zero, such as 200ms or 10s`},
		{EnvPluginWatch, "on", `SERVE_TRACING_PLUGIN_WATCH="on": want a duration above zero, such as 200ms or 10s`},
		{EnvCrashDir, "a\x00b", `SERVE_TRACING_CRASH_DIR="a\x00b": want a path`},
		{EnvPluginEnv, "a,b:,:X,a b:X,c:*,d:D_*,e:X=y", `SERVE_TRACING_PLUGIN_ENV: entry "a": must be NAME:VARIABLE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "b:": must be NAME:VARIABLE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry ":X": must be NAME:VARIABLE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "a b:X": "a b" is no name of a plugin; write NAME:VARIABLE, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "c:*": variables "*": must be a name, or a prefix of three characters or more that ends in an underscore, and a star` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "d:D_*": variables "D_*": must be a name, or a prefix of three characters or more that ends in an underscore, and a star` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "e:X=y": variables "X=y": must be a name, or a prefix of three characters or more that ends in an underscore, and a star`},
		{EnvPluginMemoryLimit, "lots", `SERVE_TRACING_PLUGIN_GOMEMLIMIT: entry "lots": "lots" must be a number of bytes above zero, such as 64MiB`},
		{EnvPluginMemoryLimit, "1GiB,2GiB", `SERVE_TRACING_PLUGIN_GOMEMLIMIT: entry "2GiB": there is one already for all plugins`},
		{EnvPluginMaxProcs, "a=1,a=2,=3,b=0", `SERVE_TRACING_PLUGIN_GOMAXPROCS: entry "a=2": there is one already for plugin "a"` + "\n" +
			`SERVE_TRACING_PLUGIN_GOMAXPROCS: entry "=3": "" is no name of a plugin; write VALUE, or NAME=VALUE` + "\n" +
			`SERVE_TRACING_PLUGIN_GOMAXPROCS: entry "b=0": "0" must be a whole number above zero`},
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
	wantAll := `SERVE_TRACING_BATCH_AGE="x": want a duration above zero, such as 200ms or 10s` + "\n" +
		"SERVE_TRACING_QUEUE_BYTES=3: want 1MiB or more\n" +
		`SERVE_TRACING_EXPORTER_PLUGIN: entries "./a" and "./a" are both named "a"; write NAME=./a to name one of them`
	if got := fmt.Sprint(all); got != wantAll {
		t.Errorf("error\n%s\nwant\n%s", got, wantAll)
	}
	if _, err := ConfigFromEnv(getenv(map[string]string{EnvQueueBytes: "1MiB"})); err != nil {
		t.Errorf("a small queue alone: %v", err)
	}
	_, err := ConfigFromEnv(getenv(map[string]string{EnvQueueBytes: "1MiB", EnvMaxSpanBytes: "1MiB", EnvBatchBytes: "512KiB"}))
	want := "SERVE_TRACING_MAX_SPAN_BYTES=1048576: want at most a quarter of SERVE_TRACING_QUEUE_BYTES\n" +
		"SERVE_TRACING_BATCH_BYTES=524288: want at most a quarter of SERVE_TRACING_QUEUE_BYTES"
	if got := fmt.Sprint(err); got != want {
		t.Errorf("error\n%s\nwant\n%s", got, want)
	}
}

func TestParseList(t *testing.T) {
	ones, sum := strings.Repeat("AB", 32), strings.Repeat("\xab", 32)
	for _, test := range []struct {
		list string
		want []entry
		err  string
	}{
		{"", nil, ""},
		{"console", []entry{{name: "console", where: "console"}}, ""},
		{"./bin/plugins/console , otlp", []entry{{name: "console", where: "./bin/plugins/console"}, {name: "otlp", where: "otlp"}}, ""},
		{"a=./x,b=./x", []entry{{name: "a", where: "./x", named: true}, {name: "b", where: "./x", named: true}}, ""},
		{"a=./with%2Ccomma%3Dequals%40at%20", []entry{{name: "a", where: "./with,comma=equals@at%20", named: true}}, ""},
		{"./plugin.py", []entry{{name: "plugin", where: "./plugin.py"}}, ""},
		{"./a/p,./b/p", nil, `entries "./a/p" and "./b/p" are both named "p"; write NAME=./b/p to name one of them`},
		{"a=b=c", nil, `entry "a=b=c": has two equals signs; write one in a path as %3D`},
		{"unix:///run/x.sock", []entry{{name: "x", where: "unix:///run/x.sock", attached: true}}, ""},
		{"a=unix://./a%2Cb%3Dc%40d.sock", []entry{{name: "a", where: "unix://./a,b=c@d.sock", attached: true, named: true}}, ""},
		{"unix://run/x", nil, `entry "unix://run/x": the path of a socket must be absolute; write unix:///run/x, or unix://./run/x for one in the working folder`},
		{"unix://", nil, `entry "unix://": names no socket; write unix:///PATH`},
		{"unix:///run/", nil, `entry "unix:///run/": names no socket; write unix:///PATH`},
		{"unix:///x@sha256:ab", nil, `entry "unix:///x@sha256:ab": an address has no pin (@sha256:…): this host does not start what listens there; remove it, or write an at sign in a path as %40`},
		{"http://localhost:4317", nil, `entry "http://localhost:4317": is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable`},
		{"unix:/run/x.sock", nil, `entry "unix:/run/x.sock": is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable`},
		{"./p@sha256:" + ones, []entry{{name: "p", where: "./p", digest: sum}}, ""},
		{"q=p.x%40y@sha256:" + strings.ToLower(ones), []entry{{name: "q", where: "p.x@y", named: true, digest: sum}}, ""},
		{"./p@sha256:ab", nil, `entry "./p@sha256:ab": the pin must be @sha256: and 64 hexadecimal digits, it has 2 characters; "servetrace plugin pin PATH" prints it, and an at sign in a path is written %40`},
		{"./p@sha256:" + ones + "@x", nil, `entry "./p@sha256:` + ones + `@x": the pin must be @sha256: and 64 hexadecimal digits, it has 66 characters; "servetrace plugin pin PATH" prints it, and an at sign in a path is written %40`},
		{"./p@sha512:ab", nil, `entry "./p@sha512:ab": what follows an at sign must be sha256: and the 64 hexadecimal digits of the file's digest; write an at sign in a path as %40`},
		{"./p@home/x", nil, `entry "./p@home/x": what follows an at sign must be sha256: and the 64 hexadecimal digits of the file's digest; write an at sign in a path as %40`},
		{"@sha256:" + ones, nil, `entry "@sha256:` + ones + `": names no plugin before its pin; write a path or a name there`},
		{"./plugins/,a/%2C/,console", []entry{{where: "./plugins/", folder: true}, {where: "a/,/", folder: true}, {name: "console", where: "console"}}, ""},
		{"all=./plugins/", nil, `entry "all=./plugins/": a folder has no name of its own (all=), its plugins are called as their files; write ./plugins/`},
		{"./plugins/@sha256:" + ones, nil, `entry "./plugins/@sha256:` + ones + `": a folder has no pin (@sha256:…), for its files may change; pin each executable`},
		{"we ird=./p", nil, `entry "we ird=./p": the name "we ird" must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH, and a comma between plugins`},
		{"console;otlp", nil, `entry "console;otlp": the name "console;otlp" must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH, and a comma between plugins`},
		{"~/console", nil, `entry "~/console": "~" is a home folder to a shell only; write the whole path, or ./~ for a file of that name`},
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

// escapedWords can not be written in a path.
var escapedWords = regexp.MustCompile(`%(2[Cc]|3[Dd]|40)`)

func FuzzParseList(f *testing.F) {
	f.Add("a=./x@sha256:00,unix:///y,/z/")
	f.Add("x@sha256:" + strings.Repeat("0f", 32) + ",b=%2C%3D%40,./z/")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseList(text)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, e := range list {
			switch {
			case e.folder:
				if e.name != "" || e.digest != "" || !strings.HasSuffix(e.where, "/") {
					t.Errorf("folder %+v of %q", e, text)
				}
			case e.name == "" || e.where == "" || names[e.name], e.digest != "" && (e.attached || len(e.digest) != 32):
				t.Errorf("entry %+v of %q", e, text)
			}
			names[e.name] = !e.folder
		}
		// What lock-down tells to write is what it takes.
		for _, e := range list {
			if e.digest == "" || escapedWords.MatchString(e.where) || strings.TrimSpace(e.where) != e.where || strings.Contains(filepath.Clean("/"+e.where), "://") {
				continue
			}
			again, err := parseList(pinned(e.named, e.name, e.where, e.digest))
			if err != nil || len(again) != 1 || again[0].digest != e.digest || again[0].name != e.name {
				t.Errorf("%q is written %q, which is %+v, %v", text, pinned(e.named, e.name, e.where, e.digest), again, err)
			}
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
	_, err = entry{where: "consol"}.resolve([]string{"/nosuch", second})
	want = fmt.Sprintf(`there is no plugin "consol" in /nosuch (there is no such folder), %s; did you mean console? Else build it there, write its path, or set SERVE_TRACING_PLUGIN_DIR`, second)
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
			got, _, err := (&Config{Environ: environ}).grant("p", test.patterns)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %s…", err, test.err)
			}
		})
	}
	cfg := Config{Environ: environ}
	if diff := cmp.Diff([]string{"PATH=/bin", "LC_ALL=C", "https_proxy=p", fmt.Sprintf("GOMAXPROCS=%d", defaultMaxProcs())}, cfg.startEnviron("p")); diff != "" {
		t.Errorf("base environment (-want +got):\n%s", diff)
	}
}
