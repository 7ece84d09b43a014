package pythonplugin

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/test/testplugin"
)

// listening is a plugin that was started by hand.
type listening struct {
	setting string // the setting that it prints
	stdout  *testplugin.Log
	cmd     *exec.Cmd
	ended   chan error // once
}

// listen starts the plugin by hand, with args after --listen PATH, and waits until it
// prints the setting.
func listen(t *testing.T, path string, args ...string) *listening {
	t.Helper()
	l := &listening{stdout: &testplugin.Log{}, ended: make(chan error, 1)}
	l.cmd = exec.CommandContext(t.Context(), plugin(t), append([]string{"--listen", path}, args...)...)
	l.cmd.Env = append(l.cmd.Environ(), "SPAN_LINES_TEAM=ml")
	log := &testplugin.Log{}
	l.cmd.Stderr = log
	stdout, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	patience := time.AfterFunc(hellotest.Patience, func() { _ = l.cmd.Process.Kill() })
	defer patience.Stop()
	lines := bufio.NewReader(stdout)
	l.setting, err = lines.ReadString('\n')
	if err != nil {
		_ = l.cmd.Wait() // the log says why
		t.Fatalf("standard output: %v\n%s", err, log)
	}
	l.setting = strings.TrimSpace(l.setting)
	go func() { // ends with the process
		_, _ = lines.WriteTo(l.stdout)
		l.ended <- l.cmd.Wait()
	}()
	return l
}

// stop ends the plugin by Ctrl-C.
func (l *listening) stop(t *testing.T) {
	t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-l.ended:
		if err != nil {
			t.Errorf("the plugin ended: %v", err)
		}
	case <-time.After(hellotest.Patience):
		_ = l.cmd.Process.Kill()
		t.Errorf("the plugin does not end within %v", hellotest.Patience)
	}
}

// Hosts come and go; the plugin configures itself, by its own environment and a
// file.
func TestAttach(t *testing.T) {
	dir := socketDir(t)
	path, config := filepath.Join(dir, "lines.sock"), filepath.Join(dir, "lines.json")
	if err := os.WriteFile(config, []byte(`{"attributes": {"region": "eu"}, "drop": ["application_span"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l := listen(t, path, "--config", config, "--debug")
	want := "SERVE_TRACING_EXPORT_TIMEOUT=1h SERVE_TRACING_MAX_AGE=24h SERVE_TRACING_EXPORTER_PLUGIN=unix://" + path
	if l.setting != want {
		t.Fatalf("it says to set %q, want %q", l.setting, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info, err)
	}
	for _, id := range []string{"r1", "r2"} {
		s := hellotest.Start(t, strings.Fields(l.setting)...)
		s.Get("/", id)
		testplugin.WaitFor(t, "the spans of "+id, func() bool { return strings.Count(l.stdout.String(), `"request_id": "`+id+`"`) >= 3 })
		s.Stop()
		if !regexp.MustCompile(`msg=stopped .*lines\.delivered=3 .*lines\.filtered=map\[drop:1\]`).MatchString(s.Log.String()) {
			t.Errorf("the accounting does not have 3 delivered and 1 filtered:\n%s", s.Log)
		}
	}
	l.stop(t)
	spans := parse(t, l.stdout.String())
	for _, span := range spans {
		if span.Attributes["team"] != "ml" || span.Attributes["region"] != "eu" {
			t.Errorf("span %q has %v, want team ml and region eu", span.Name, span.Attributes)
		}
	}
	if len(spans) != 2*(hellotest.SpansOfRequest-1) {
		t.Errorf("%d spans, want six: four of each request, but for those dropped", len(spans))
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A socket that a dead process has left is replaced, a living one is not, nor
// anything else.
func TestListenOnAPathThatIsTaken(t *testing.T) {
	dir := socketDir(t)
	path := filepath.Join(dir, "lines.sock")
	dead := listen(t, path)
	if err := dead.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-dead.ended; err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the killed plugin ended: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("a killed plugin should leave its socket: %v", err)
	}
	alive := listen(t, path)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		path:                           "another process listens there: end it, or choose another path",
		file:                           "there is another file: choose another path, or remove it",
		dir + strings.Repeat("/x", 50): "the system takes 103: use a shorter one",
	} {
		out, err := exec.CommandContext(t.Context(), plugin(t), "--listen", "unix://"+path).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("--listen %s: %v, %q; want %q", path, err, out, want)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file has %q, %v", text, err)
	}
	alive.stop(t)
}

// The output for people who run it by hand.
func TestByHand(t *testing.T) {
	path := plugin(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		want []string
	}{
		{nil, 1, []string{"python-lines 1.0.0: prints each span", "SERVE_TRACING_EXPORTER_PLUGIN=" + link + " your-service"}},
		{[]string{"--help"}, 0, []string{"    SPAN_LINES_TEAM\n", "--listen PATH"}},
		{[]string{"--version"}, 0, []string{"python-lines 1.0.0\n"}},
		{[]string{"--describe"}, 0, []string{`"kind": "exporter"`, `"max_batch_spans": 512`, `"language": "python"`}},
		{[]string{"--listen"}, 2, []string{"--listen: expected one argument"}},
		{[]string{"--listen", "/tmp/x", "--config", "/nowhere"}, 1, []string{"No such file or directory: '/nowhere'"}},
	} {
		cmd := exec.CommandContext(t.Context(), link, tc.args...)
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tc.code {
			t.Errorf("plugin %q: status %d, want %d", tc.args, code, tc.code)
		}
		for _, want := range tc.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("plugin %q prints no %q:\n%s", tc.args, want, out)
			}
		}
	}
}

// socketDir makes a folder whose path is short enough for a socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "py")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // it may be gone
	return dir
}
