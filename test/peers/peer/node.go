package peer

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// nodePatience bounds the run of a script: they make a few requests.
const nodePatience = 2 * time.Minute

// Node runs a script of the folder node of this module, with variables ("NAME=value")
// beside the environment of peers, and returns its standard output. It blocks until the
// script has ended. A script that fails fails the test. The test is skipped if node or
// its packages are missing.
func Node(tb testing.TB, script string, env ...string) string {
	tb.Helper()
	return runScript(tb, "node", script, env)
}

// Web is Node for the scripts of the folder web, which act as a browser.
func Web(tb testing.TB, script string, env ...string) string {
	tb.Helper()
	return runScript(tb, "web", script, env)
}

// runScript runs a script of the folder that has the peer's name too.
func runScript(tb testing.TB, folder, script string, env []string) string {
	tb.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		tb.Skipf("no node, for %s: %v", script, err)
	}
	packages := program(tb, folder, "node_modules")
	ctx, cancel := context.WithTimeout(tb.Context(), nodePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", filepath.Join(moduleDir(tb), folder, script))
	cmd.Env = append(append(baseEnvironment(), "NODE_PATH="+packages), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = deathPact()
	runtime.LockOSThread() // whose end would be the script's
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		tb.Fatalf("node %s: %v\n%s%s", script, err, &out, &errs)
	}
	return out.String()
}
