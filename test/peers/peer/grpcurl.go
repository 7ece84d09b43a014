package peer

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// grpcurlPatience bounds one call; a busy machine counts.
const grpcurlPatience = time.Minute

// GRPCurl runs grpcurl without TLS and gives what it has printed on both of its
// outputs, and its exit code: 0, or 64 and the code of gRPC that the call ended
// with, or another for what was no call. It blocks until it has ended; input is
// its standard input. The test is skipped where it is not built.
func GRPCurl(tb testing.TB, input string, args ...string) (stdout, stderr string, code int) {
	tb.Helper()
	path := program(tb, "grpcurl", "grpcurl")
	ctx, cancel := context.WithTimeout(tb.Context(), grpcurlPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"-plaintext"}, args...)...)
	cmd.Env = baseEnvironment()
	var out, log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &log
	cmd.SysProcAttr = deathPact()
	runtime.LockOSThread() // whose end would be its own
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		tb.Fatalf("grpcurl: %v", err)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}
