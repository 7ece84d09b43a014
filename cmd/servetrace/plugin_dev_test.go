package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/servetrace/servetrace/test/testplugin"
)

// scaffolded returns the folder of a new processor plugin tenant.
func scaffolded(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a module")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	dir := filepath.Join(t.TempDir(), "tenant")
	if _, _, err := command(t, nil, "plugin", "new", "tenant", "--kind", string(kindProcessor), "--dir", dir, "--replace", clone(t)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startDev starts plugin dev with a relay. The log is shown if the test fails.
func startDev(t *testing.T, dir, exporter string) (*exec.Cmd, *testplugin.Log) {
	t.Helper()
	own := ownBinary(t, "servetrace")
	_, port, _ := strings.Cut(unused(t), ":")
	cmd := exec.Command(own, "plugin", "dev", dir, "--", own, "relay", "--grpc", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "SERVE_TRACING_EXPORTER_PLUGIN="+exporter,
		"SERVE_TRACING_BATCH_AGE=20ms", "SERVE_ADMIN_PORT="+port, "TENANT_TEAM=checkout")
	log := &testplugin.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // after a failure
			_ = cmd.Process.Signal(syscall.SIGINT)
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("output:\n%s", log)
		}
	})
	return cmd, log
}

// TestPluginDev edits a plugin in a running service: a good change is in the service and
// in the difference of the last batch, a bad change leaves the service as it is.
func TestPluginDev(t *testing.T) {
	dir, exporter := scaffolded(t), testplugin.Install(t, "record")
	cmd, log := startDev(t, dir, exporter)
	wait := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			testplugin.WaitFor(t, text, func() bool { return strings.Contains(log.String(), text) })
		}
	}
	wait("dev: built "+filepath.Join(dir, "tenant"), `"stringValue": "checkout"`, "relay listens", "plugin=tenant")
	conn := dialRelay(t, regexp.MustCompile(`grpc=http://(\S+)`).FindStringSubmatch(log.String())[1])
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	traffic := make(chan struct{})
	go func() { // ends with ctx
		defer close(traffic)
		for ctx.Err() == nil {
			_, _ = coltracepb.NewTraceServiceClient(conn).Export(ctx, named("of the service"))
		}
	}()
	defer func() { cancel(); <-traffic }()
	testplugin.WaitFor(t, "spans", func() bool { return testplugin.Spans(t, exporter)["of the service"] > 0 })

	main := filepath.Join(dir, "main.go")
	edit := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(main)
		if err != nil || !strings.Contains(string(text), from) {
			t.Fatalf("%s has no %q: %v", main, from, err)
		}
		if err := os.WriteFile(main, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit(`attribute.String("team", value)`, `attribute.String("tenant", value)`)
	wait(`-                  "key": "team"`, `+                  "key": "tenant"`, `"name": "of the service"`, "dev: the service runs it, pid ")
	edit("func main()", "func main(x)")
	wait("dev: the build has failed: exit status 1", "func main must have no arguments")
	edit("func main(x)", "func main()")
	wait("dev: the output is the same")
	cancel()
	<-traffic
	edit(`attribute.String("tenant", value)`, `attribute.String("region", value)`)
	wait(`+                  "key": "region"`)
	edit(`attribute.String("region", value)`, `attribute.String("zone", value)`)
	wait(`+                  "key": "zone"`)
	if strings.Contains(log.String(), "does not run the new build yet") {
		t.Error("without traffic, a change waits for the service")
	}

	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
	wait("msg=stopped", "dev: stopped")
	if strings.Contains(log.String(), "Error:") {
		t.Error("the signal is an error")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".servetrace*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestPluginDevKilled: the service ends with a command that is killed.
func TestPluginDevKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a signal for the death of a parent")
	}
	cmd, log := startDev(t, scaffolded(t), testplugin.Install(t, "record"))
	running := regexp.MustCompile(`dev: started \S+, pid (\d+),`)
	testplugin.WaitFor(t, "the service", func() bool {
		return running.MatchString(log.String()) && strings.Contains(log.String(), "relay listens")
	})
	pid, err := strconv.Atoi(running.FindStringSubmatch(log.String())[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "the end of the service", func() bool { return testplugin.Gone(pid) })
	_ = cmd.Wait() // it was killed
}

// TestPluginDevWatches: only files of the build start another build.
func TestPluginDevWatches(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n", "main.go": "package main\n\nimport _ \"embed\"\n\n//go:embed data.txt\nvar data string\n\nfunc main() { println(data) }\n",
		"data.txt": "", "notes.txt": "", "main_test.go": "package main\n", ".#main.go": "", "config.yaml": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := goBuild{folder: dir, more: []string{filepath.Join(dir, "config.yaml")}}
	b.watch(t.Context())
	var got []string
	for path := range b.look() {
		got = append(got, filepath.Base(path))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"config.yaml", "data.txt", "go.mod", "main.go"}, got); diff != "" {
		t.Errorf("watched files (-want +got):\n%s", diff)
	}
}

// TestPluginDevReplaces: the built file is never missing, and the previous build stays.
func TestPluginDevReplaces(t *testing.T) {
	dir := t.TempDir()
	b := goBuild{file: filepath.Join(dir, "plugin")}
	partial := b.before() + ".new"
	if err := os.Mkdir(b.aside(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, build := range []string{"1", "2", "3"} {
		if err := os.WriteFile(partial, []byte(build), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.replace(partial); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.replace(partial); err == nil {
		t.Error("a build that does not exist replaces the file")
	}
	for file, want := range map[string]string{b.file: "3", b.before(): "3"} { // replace has failed after the link
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v; want %q", file, got, err, want)
		}
	}
	if err := os.WriteFile(partial, []byte("4"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.replace(partial); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(b.before()); err != nil || string(got) != "3" {
		t.Errorf("the previous build is %q, %v; want 3", got, err)
	}
}

// TestPluginDevErrors: wrong arguments end the command before a build.
func TestPluginDevErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "FOLDER is missing"},
		{[]string{"a", "--"}, "no program follows --"},
		{[]string{"/nosuch"}, "FOLDER /nosuch: stat /nosuch: no such file or directory"},
		{[]string{t.TempDir()}, "there is no go.mod in it or above it"},
		{[]string{".", "--admin", "a b"}, `--admin "a b": want host:port`},
		{[]string{".", "--spans", "/nosuch"}, "open /nosuch: no such file or directory"},
	} {
		if _, _, err := command(t, nil, append([]string{"plugin", "dev"}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.want) || exitCode(t.Context(), err) != exitUsage {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
}
