package peer

import (
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
	return runTool(tb, grpcurlPatience, strings.NewReader(input), nil, path, append([]string{"-plaintext"}, args...)...)
}
