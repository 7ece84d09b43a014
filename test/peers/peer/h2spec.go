package peer

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// h2specPatience bounds a run: some hundred and fifty cases, most of them a few
// milliseconds, each at most five seconds.
const h2specPatience = 5 * time.Minute

// H2Spec runs the conformance tests of HTTP/2 against the server at a port of
// the loopback, which speaks it without encryption, and gives the result of each
// case, "passed", "failed" or "skipped", by package and title. It blocks until
// it has ended; the test is skipped where it is not built.
func H2Spec(tb testing.TB, port int) map[string]string {
	tb.Helper()
	path := program(tb, "h2spec", "h2spec")
	report := filepath.Join(tb.TempDir(), "report.xml")
	// It exits with 1 if a case fails.
	stdout, stderr, _ := runTool(tb, h2specPatience, nil, nil, path, "--port", strconv.Itoa(port), "--timeout", "5", "--junit-report", report)
	text, err := os.ReadFile(report)
	if err != nil {
		tb.Fatalf("h2spec: %v\n%s%s", err, stdout, stderr)
	}
	return readJUnit(tb, text)
}

func readJUnit(tb testing.TB, text []byte) map[string]string {
	tb.Helper()
	var report struct {
		Suites []struct {
			Cases []struct {
				Package string    `xml:"package,attr"`
				Title   string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		tb.Fatalf("h2spec's report: %v", err)
	}
	results := map[string]string{}
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			result := "passed"
			switch {
			case c.Failure != nil, c.Error != nil:
				result = "failed"
			case c.Skipped != nil:
				result = "skipped"
			}
			results[c.Package+": "+c.Title] = result
		}
	}
	return results
}
