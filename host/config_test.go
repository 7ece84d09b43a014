package host_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/pipeline"
)

func getenv(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestConfigFromEnv(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want host.Config
	}{
		{"nothing", nil, host.Config{}},
		{"all of ours", map[string]string{
			host.EnvPlugins: " ./a,b ", host.EnvPluginDir: "/x:/y", host.EnvQueueBytes: "64MiB", host.EnvMaxSpanBytes: "512KiB",
			host.EnvBatchAge: "1s", host.EnvBatchSpans: "100", host.EnvBatchBytes: "65536", host.EnvExportTimeout: "3s", host.EnvMaxAge: "1m",
			host.EnvStartTimeout: "2s", host.EnvStopTimeout: "4s", "OTEL_SERVICE_NAME": "shop", "RAY_JOB_ID": "01000000",
			host.EnvCrashDir: "crashes", host.EnvPluginWritable: "Allow", host.EnvStartJitter: "3s", host.EnvPluginWatch: "5s",
			host.EnvPluginEnv: "*:HTTP_*, a:AWS_*,a:X", host.EnvPluginMemoryLimit: "64MiB,a=1GiB", host.EnvPluginMaxProcs: "b=2",
		}, host.Config{
			CrashDir: "crashes", AllowWritable: true, StartJitter: 3 * time.Second, Watch: 5 * time.Second,
			PluginEnv:         map[string][]string{"*": {"HTTP_*"}, "a": {"AWS_*", "X"}},
			PluginMemoryLimit: map[string]int64{"": 64 << 20, "a": 1 << 30}, PluginMaxProcs: map[string]int{"b": 2},

			Plugins: "./a,b", PluginDirs: []string{"/x", "/y"}, QueueBytes: 64 << 20, MaxSpanBytes: 512 << 10,
			BatchAge: time.Second, BatchSpans: 100, BatchBytes: 65536, ExportTimeout: 3 * time.Second, MaxAge: time.Minute,
			StartTimeout: 2 * time.Second, StopTimeout: 4 * time.Second, Context: host.Context{ServiceName: "shop", Job: "01000000"},
		}},
		{"OpenTelemetry's", map[string]string{
			"OTEL_BSP_SCHEDULE_DELAY": "5000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "512", "OTEL_BSP_EXPORT_TIMEOUT": "30000",
		}, host.Config{BatchAge: 5 * time.Second, BatchSpans: 512, ExportTimeout: 30 * time.Second}},
		{"ours before OpenTelemetry's", map[string]string{
			"OTEL_BSP_SCHEDULE_DELAY": "5000", host.EnvBatchAge: "1s", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "7", host.EnvBatchSpans: "9",
		}, host.Config{BatchAge: time.Second, BatchSpans: 9}},
		{"OpenTelemetry's beyond our bound", map[string]string{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100000"}, host.Config{BatchSpans: pipeline.MostBatchSpans}},
		{"lock-down without plugins", map[string]string{host.EnvLockdown: "True", host.EnvPluginDir: "/x"}, host.Config{Lockdown: true, PluginDirs: []string{"/x"}}},
		{"names of plugins that are switched off", map[string]string{
			host.EnvPlugins: "./a", "OTEL_SDK_DISABLED": "true", host.EnvPluginEnv: "a:X", host.EnvPluginMaxProcs: "a=1",
		}, host.Config{PluginEnv: map[string][]string{"a": {"X"}}, PluginMaxProcs: map[string]int{"a": 1}}},
		{"switched off", map[string]string{host.EnvPlugins: "./a", "OTEL_SDK_DISABLED": "TRUE"}, host.Config{}},
		{"no exporter wanted", map[string]string{host.EnvPlugins: "./a", "OTEL_TRACES_EXPORTER": "none"}, host.Config{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := host.ConfigFromEnv(getenv(test.env))
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
		{host.EnvQueueBytes, "lots", `SERVE_TRACING_QUEUE_BYTES="lots": want a number of bytes from 1 to 1024GiB, such as 1048576, 512KiB or 32MiB`},
		{host.EnvQueueBytes, "-1", `SERVE_TRACING_QUEUE_BYTES="-1": want a number of bytes from 1 to 1024GiB, such as 1048576, 512KiB or 32MiB`},
		{host.EnvQueueBytes, "9999999GiB", `SERVE_TRACING_QUEUE_BYTES="9999999GiB": want a number of bytes from 1 to 1024GiB, such as 1048576, 512KiB or 32MiB`},
		{host.EnvMaxSpanBytes, "4MiB", "SERVE_TRACING_MAX_SPAN_BYTES=4194304: want between 1 and 3MiB"},
		{host.EnvBatchAge, "200", `SERVE_TRACING_BATCH_AGE="200": want a duration above zero, such as 200ms or 10s`},
		{host.EnvBatchAge, "0s", `SERVE_TRACING_BATCH_AGE="0s": want a duration above zero, such as 200ms or 10s`},
		{host.EnvBatchSpans, "many", `SERVE_TRACING_BATCH_SPANS="many": want a whole number from 1 to 2147483647`},
		{host.EnvBatchSpans, "9999999999", `SERVE_TRACING_BATCH_SPANS="9999999999": want a whole number from 1 to 2147483647`},
		{host.EnvBatchSpans, "70000", "SERVE_TRACING_BATCH_SPANS=70000: want between 1 and 65536"},
		{"OTEL_BSP_SCHEDULE_DELAY", "soon", `OTEL_BSP_SCHEDULE_DELAY="soon": want a whole number`},
		{host.EnvLockdown, "maybe", `SERVE_TRACING_LOCKDOWN="maybe": want true or false`},
		{host.EnvPluginWritable, "true", `SERVE_TRACING_PLUGIN_WRITABLE="true": want refuse or allow`},
		{host.EnvStartJitter, "0", `SERVE_TRACING_START_JITTER="0": want a duration above zero, such as 200ms or 10s`},
		{host.EnvPluginWatch, "on", `SERVE_TRACING_PLUGIN_WATCH="on": want a duration above zero, such as 200ms or 10s`},
		{host.EnvCrashDir, "a\x00b", `SERVE_TRACING_CRASH_DIR="a\x00b": want a path`},
		{host.EnvPluginEnv, "a,b:,:X,a b:X,c:*,d:D_*,e:X=y", `SERVE_TRACING_PLUGIN_ENV: entry "a": must be NAME:VARIABLE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "b:": must be NAME:VARIABLE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry ":X": must be NAME:VARIABLE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "a b:X": "a b" is no name of a plugin; write NAME:VARIABLE, or * for all` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "c:*": variables "*": must be a name, or a prefix of three characters or more that ends in an underscore, and a star` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "d:D_*": variables "D_*": must be a name, or a prefix of three characters or more that ends in an underscore, and a star` + "\n" +
			`SERVE_TRACING_PLUGIN_ENV: entry "e:X=y": variables "X=y": must be a name, or a prefix of three characters or more that ends in an underscore, and a star`},
		{host.EnvPluginMemoryLimit, "lots", `SERVE_TRACING_PLUGIN_GOMEMLIMIT: entry "lots": "lots" must be a number of bytes from 1 to 1024GiB, such as 64MiB`},
		{host.EnvPluginMemoryLimit, "1GiB,2GiB", `SERVE_TRACING_PLUGIN_GOMEMLIMIT: entry "2GiB": there is one already for all plugins`},
		{host.EnvPluginMaxProcs, "a=1,a=2,=3,b=0", `SERVE_TRACING_PLUGIN_GOMAXPROCS: entry "a=2": there is one already for plugin "a"` + "\n" +
			`SERVE_TRACING_PLUGIN_GOMAXPROCS: entry "=3": "" is no name of a plugin; write VALUE, or NAME=VALUE` + "\n" +
			`SERVE_TRACING_PLUGIN_GOMAXPROCS: entry "b=0": "0" must be a whole number from 1 to 65536`},
		{host.EnvPlugins, ",", `SERVE_TRACING_EXPORTER_PLUGIN: entry "": names no plugin; write a path or a name, or remove the comma`},
	} {
		t.Run(test.name+"="+test.value, func(t *testing.T) {
			_, err := host.ConfigFromEnv(getenv(map[string]string{test.name: test.value}))
			if got := fmt.Sprint(err); got != test.want {
				t.Errorf("error\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	_, all := host.ConfigFromEnv(getenv(map[string]string{host.EnvBatchAge: "x", host.EnvQueueBytes: "3", host.EnvPlugins: "./a,./a"}))
	wantAll := `SERVE_TRACING_BATCH_AGE="x": want a duration above zero, such as 200ms or 10s` + "\n" +
		"SERVE_TRACING_QUEUE_BYTES=3: want 1MiB or more\n" +
		`SERVE_TRACING_EXPORTER_PLUGIN: entries "./a" and "./a" are both named "a"; write NAME=./a to name one of them`
	if got := fmt.Sprint(all); got != wantAll {
		t.Errorf("error\n%s\nwant\n%s", got, wantAll)
	}
	if _, err := host.ConfigFromEnv(getenv(map[string]string{host.EnvQueueBytes: "1MiB"})); err != nil {
		t.Errorf("a small queue alone: %v", err)
	}
	_, err := host.ConfigFromEnv(getenv(map[string]string{host.EnvQueueBytes: "1MiB", host.EnvMaxSpanBytes: "1MiB", host.EnvBatchBytes: "512KiB"}))
	want := "SERVE_TRACING_MAX_SPAN_BYTES=1048576: want at most a quarter of SERVE_TRACING_QUEUE_BYTES\n" +
		"SERVE_TRACING_BATCH_BYTES=524288: want at most a quarter of SERVE_TRACING_QUEUE_BYTES"
	if got := fmt.Sprint(err); got != want {
		t.Errorf("error\n%s\nwant\n%s", got, want)
	}
}
