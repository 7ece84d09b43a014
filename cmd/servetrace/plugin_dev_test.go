package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/servetrace/servetrace/test/testplugin"
)

// TestPluginDev edits a plugin in a running service: a good change is in the service and
// in the difference of the last batch, a bad change leaves the service as it is.
func TestPluginDev(t *testing.T) {
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
	service, exporter := ownBinary(t, "servetrace"), testplugin.Install(t, "record")
	_, port, _ := strings.Cut(unused(t), ":")
	cmd := exec.Command(service, "plugin", "dev", dir, "--", service, "relay", "--grpc", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "SERVE_TRACING_EXPORTER_PLUGIN="+exporter,
		"SERVE_TRACING_BATCH_AGE=20ms", "SERVE_ADMIN_PORT="+port, "TENANT_TEAM=checkout")
	log := &testplugin.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = cmd.Process.Signal(syscall.SIGINT) // after a failure
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("output:\n%s", log)
		}
	})
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

	stopped = true
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v, want exit code %d", err, exitInterrupted)
	}
	wait("msg=stopped")
	left, err := filepath.Glob(filepath.Join(dir, ".servetrace*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
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
		{[]string{".", "--admin", "a b"}, `--admin "a b": want host:port`},
		{[]string{".", "--spans", "/nosuch"}, "open /nosuch: no such file or directory"},
	} {
		if _, _, err := command(t, nil, append([]string{"plugin", "dev"}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.want) || exitCode(t.Context(), err) != exitUsage {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
}
