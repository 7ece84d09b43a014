package deploy

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program is a command in a root folder of its own.
type program struct {
	root    string
	command []string
	env     []string
	// user is the uid and the gid, root if zero.
	user uint32
}

// cmd returns the command, not yet started.
func (p program) cmd(args ...string) *exec.Cmd {
	cmd := exec.Command(p.command[0], append(p.command[1:len(p.command):len(p.command)], args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root, Credential: &syscall.Credential{Uid: p.user, Gid: p.user}}
	cmd.Dir = "/"
	cmd.Env = p.env
	return cmd
}

// running is a program whose output is read line by line.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr *bufio.Scanner
}

// start starts a program, which has a minute for its life.
func (p program) start(t *testing.T) running {
	t.Helper()
	cmd := p.cmd()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		if over.Stop() {
			_ = cmd.Process.Kill() // if the test has failed
		}
	})
	return running{cmd, bufio.NewScanner(stdout), bufio.NewScanner(stderr)}
}

// checkRelay starts a relay and sends a span, which the plugin console prints. Then it
// stops the relay.
func checkRelay(t *testing.T, p program) {
	t.Helper()
	p.env = append(p.env, "SERVE_RELAY_HTTP=127.0.0.1:0", "SERVE_RELAY_GRPC=127.0.0.1:0")
	begin := time.Now()
	relay := p.start(t)
	url := await(t, relay.stderr, `http=(http://\S+)`)
	body := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"installed"}]}]}]}`
	resp, err := http.Post(url+"/v1/traces", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	await(t, relay.stdout, `"name": "(installed)"`)
	t.Logf("first span %v after the start", time.Since(begin).Round(time.Millisecond))
	relay.stop(t, `msg=stopped spans=(1) console.delivered=1`)
}

// stop ends a program by SIGTERM. Its last line matches the pattern.
func (r running) stop(t *testing.T, pattern string) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	await(t, r.stderr, pattern)
	for r.stdout.Scan() { // to the end
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the program ends with %v", err)
	}
}

// await reads lines until one matches, and returns its group.
func await(t *testing.T, lines *bufio.Scanner, pattern string) string {
	t.Helper()
	matcher := regexp.MustCompile(pattern)
	var seen []string
	for lines.Scan() {
		if m := matcher.FindStringSubmatch(lines.Text()); m != nil {
			return m[1]
		}
		seen = append(seen, lines.Text())
	}
	t.Fatalf("no line matches %s:\n%s", pattern, strings.Join(seen, "\n"))
	return ""
}

// get returns the body of a response.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
