package deploy

import (
	"bufio"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// packages is the folder of `make release`.
const packages = "../../bin/release"

// TestDebianPackage installs the package in a root folder of its own, runs the command of
// the systemd unit there, and removes the package.
func TestDebianPackage(t *testing.T) {
	file := packageFile(t, "deb", "dpkg")
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg", "--root="+root, "--log=/dev/null", "--force-script-chrootless", "-i", file)
	checkInstalled(t, root)
	run(t, "dpkg", "--root="+root, "--log=/dev/null", "--force-script-chrootless", "--purge", "servetrace")
	checkRemoved(t, root, "var/lib/dpkg")
}

// TestRPMPackage is TestDebianPackage for rpm.
func TestRPMPackage(t *testing.T) {
	file := packageFile(t, "rpm", "rpm")
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "rpm", "--root="+root, "--dbpath=/var/lib/rpm", "--nosignature", "-i", file)
	checkInstalled(t, root)
	run(t, "rpm", "--root="+root, "--dbpath=/var/lib/rpm", "-e", "servetrace")
	checkRemoved(t, root, "var/lib/rpm")
}

// packageFile returns the package of a form for this machine. The test is skipped if there
// is none, or no command that installs it.
func packageFile(t *testing.T, form, command string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(packages, "*."+form))
	if err != nil || len(files) != 1 {
		t.Skipf("%d files *.%s in bin/release: run make test-release", len(files), form)
	}
	if _, err := exec.LookPath(command); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root and %s: %v", command, err)
	}
	file, err := filepath.Abs(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func run(t *testing.T, command string, args ...string) {
	t.Helper()
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", command, args, err, out)
	}
}

// checkInstalled starts the relay as the systemd unit does, and sends a span, which the
// default plugin prints.
func checkInstalled(t *testing.T, root string) {
	t.Helper()
	unit := readFile(t, filepath.Join(root, "usr/lib/systemd/system/servetrace-relay.service"))
	command := strings.Fields(find(t, unit, `(?m)^ExecStart=(.+)$`))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin", "SERVE_RELAY_HTTP=127.0.0.1:0"}
	settings := readFile(t, filepath.Join(root, find(t, unit, `(?m)^EnvironmentFile=-(.+)$`)))
	for line := range strings.Lines(settings) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			cmd.Env = append(cmd.Env, line)
		}
	}
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
	defer over.Stop()
	log := bufio.NewScanner(stderr)
	url := await(t, log, `http=(http://\S+)`)
	body := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"installed"}]}]}]}`
	resp, err := http.Post(url+"/v1/traces", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	await(t, bufio.NewScanner(stdout), `"name": "(installed)"`)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	await(t, log, `msg=stopped spans=(1) console.delivered=1`)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the relay ends with %v", err)
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

func find(t *testing.T, text, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("nothing matches %s in\n%s", pattern, text)
	}
	return m[1]
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkRemoved reports files and folders below root that are left, except for the
// database of the package manager.
func checkRemoved(t *testing.T, root, database string) {
	t.Helper()
	var left []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path) // both are absolute
		if strings.HasPrefix(rel, database) {
			return nil
		}
		if !d.IsDir() || strings.Contains(rel, "servetrace") {
			left = append(left, rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", slices.Compact(left))
	}
}
