package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// runTool runs a program to its end and returns its standard output, its
// standard error and its exit code. The program gets env ("NAME=value") beside
// the environment of peers. The test fails if the program cannot be started, or
// runs longer than patience.
func runTool(tb testing.TB, patience time.Duration, stdin io.Reader, env []string, path string, args ...string) (stdout, stderr string, code int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(baseEnvironment(), env...)
	var out, log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &log
	cmd.SysProcAttr = deathPact()
	runtime.LockOSThread() // The end of the thread is the end of the program.
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); ctx.Err() != nil || (err != nil && !failed) {
		tb.Fatalf("%s: %v (%v)\n%s%s", path, err, context.Cause(ctx), &out, &log)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}
