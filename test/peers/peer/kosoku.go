package peer

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// kosokuPatience bounds a run of some three hundred cases.
const kosokuPatience = 5 * time.Minute

// Kosoku runs Autobahn's web socket cases against the echo server at url
// ("ws://127.0.0.1:8000/echo") and returns the verdict of each case by its
// number. A verdict is "MESSAGES, CLOSE, CODE": Autobahn's words for the
// messages and for the closing handshake, and the server's close code. Cases
// run whose numbers match one of patterns ("1.*"). Kosoku blocks until all of
// them have ended. The test is skipped if the suite or Python is missing.
func Kosoku(tb testing.TB, url string, patterns ...string) map[string]string {
	tb.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		tb.Skipf("no python3, for kosoku: %v", err)
	}
	packages := program(tb, "kosoku")
	reports := tb.TempDir()
	// Each case has a connection of its own and mostly waits.
	args := []string{"-c", "from kosoku._cli import main; main()", "--outdir", reports, "--parallelism", strconv.Itoa(8), url}
	for _, pattern := range patterns {
		args = append(args, "--include", pattern)
	}
	stdout, stderr, _ := runTool(tb, kosokuPatience, nil, []string{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1"}, python, args...)
	text, err := os.ReadFile(filepath.Join(reports, "index.json"))
	if err != nil {
		tb.Fatalf("kosoku: %v\n%s%s", err, stdout, stderr)
	}
	return readKosoku(tb, text)
}

func readKosoku(tb testing.TB, text []byte) map[string]string {
	tb.Helper()
	var agents map[string]map[string]struct {
		Behavior        string `json:"behavior"`
		BehaviorClose   string `json:"behaviorClose"`
		RemoteCloseCode *int   `json:"remoteCloseCode"`
	}
	if err := json.Unmarshal(text, &agents); err != nil {
		tb.Fatalf("kosoku's report: %v", err)
	}
	verdicts := map[string]string{}
	for _, cases := range agents { // by the Server field, which a failed handshake lacks
		for number, c := range cases {
			code := "none"
			if c.RemoteCloseCode != nil {
				code = strconv.Itoa(*c.RemoteCloseCode)
			}
			verdicts[number] = c.Behavior + ", " + c.BehaviorClose + ", " + code
		}
	}
	return verdicts
}
