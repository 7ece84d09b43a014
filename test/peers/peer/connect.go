package peer

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// connectPatience bounds a run: some 370 calls, of which 8 run at a time.
const connectPatience = 2 * time.Minute

// connectFeatures is the part of the suite that a gRPC server is to pass.
const connectFeatures = `features:
  versions: [HTTP_VERSION_2]
  protocols: [PROTOCOL_GRPC]
  codecs: [CODEC_PROTO]
  compressions: [COMPRESSION_IDENTITY, COMPRESSION_GZIP]
  supportsTls: false
`

// The output of the suite: a line for each failure, its reasons indented below it, and a
// line with the counts at the end.
var (
	connectFailure = regexp.MustCompile(`(?m)^FAILED: (.+):\n((?:\t.*\n)*)`)
	connectCounts  = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed$`)
)

// ConnectConformance runs Connect's conformance suite against the server of
// folder connect, which gets args. It returns the number of cases that passed
// and why each other case failed, by its name. It blocks until the suite has
// ended. The test is skipped if the suite is not built.
func ConnectConformance(tb testing.TB, args ...string) (passed int, failures map[string]string) {
	tb.Helper()
	suite := program(tb, "connectconformance", "connectconformance")
	dir := tb.TempDir()
	server, features := filepath.Join(dir, "server"), filepath.Join(dir, "features.yaml")
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", server, ".")
	build.Dir = filepath.Join(moduleDir(tb), "connect")
	build.Env = append(build.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the server under test: %v\n%s", err, out)
	}
	if err := os.WriteFile(features, []byte(connectFeatures), 0o600); err != nil {
		tb.Fatal(err)
	}
	stdout, stderr, _ := runTool(tb, connectPatience, nil, nil, suite, append([]string{"--mode", "server", "--conf", features, "--", server}, args...)...)
	return readConnect(tb, stdout+stderr)
}

// readConnect reads the suite's output.
func readConnect(tb testing.TB, text string) (passed int, failures map[string]string) {
	tb.Helper()
	counts := connectCounts.FindStringSubmatch(text)
	failures = map[string]string{}
	for _, f := range connectFailure.FindAllStringSubmatch(text, -1) {
		failures[f[1]] = f[2]
	}
	if counts == nil || counts[2] != strconv.Itoa(len(failures)) {
		tb.Fatalf("%d failures of the conformance suite do not fit its counts:\n%s", len(failures), text)
	}
	passed, err := strconv.Atoi(counts[1])
	if err != nil {
		tb.Fatal(err)
	}
	return passed, failures
}
