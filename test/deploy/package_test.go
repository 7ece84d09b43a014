package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
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
	found := released(t, "*_"+runtime.GOARCH+"."+form)[0]
	if _, err := exec.LookPath(command); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root and %s: %v", command, err)
	}
	file, err := filepath.Abs(found)
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
	env := []string{"PATH=/usr/bin"}
	settings := readFile(t, filepath.Join(root, find(t, unit, `(?m)^EnvironmentFile=-(.+)$`)))
	for line := range strings.Lines(settings) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			env = append(env, line)
		}
	}
	checkRelay(t, program{root: root, command: strings.Fields(find(t, unit, `(?m)^ExecStart=(.+)$`)), env: env})
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
