package peer

import (
	"strings"
	"testing"
	"time"
)

// grpcurlPatience bounds one call; a busy machine counts.
const grpcurlPatience = time.Minute

// GRPCurl runs grpcurl without TLS. It returns its output and its exit code: 0, or 64
// plus the gRPC code of the call, or another code if there was no call. It blocks until
// grpcurl has ended. input is its standard input. The test is skipped if grpcurl is not
// built.
func GRPCurl(tb testing.TB, input string, args ...string) (stdout, stderr string, code int) {
	tb.Helper()
	path := program(tb, "grpcurl", "grpcurl")
	return runTool(tb, grpcurlPatience, strings.NewReader(input), nil, path, append([]string{"-plaintext"}, args...)...)
}
