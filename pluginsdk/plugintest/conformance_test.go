package plugintest_test

import (
	"bytes"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/test/testplugin"
)

// testEnviron returns variables for each process of this test binary: a folder for
// coverage, and no pause at the end under the race detector.
func testEnviron(tb testing.TB) []string {
	tb.Helper()
	return []string{"GOCOVERDIR=" + tb.TempDir(), "GORACE=atexit_sleep_ms=0"}
}

// patient is for plugins that keep every rule, so that they pass on a busy machine.
var patient = plugintest.WithPatience(time.Minute)

// inputs returns an option for each Input, for plugins of testplugin's mode "scripted".
func inputs() []plugintest.Option {
	var opts []plugintest.Option
	for _, input := range []plugintest.Input{
		plugintest.Permanent, plugintest.Retryable, plugintest.Partial, plugintest.Filtered, plugintest.Slow, plugintest.Stuck,
	} {
		opts = append(opts, plugintest.WithInput(input, named(string(input))))
	}
	return opts
}

// named returns a request with spans of these names.
func named(names ...string) *coltracepb.ExportTraceServiceRequest {
	var spans []*tracepb.Span
	for _, name := range names {
		spans = append(spans, &tracepb.Span{Name: name, TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567")})
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}}}
}

// received returns the option that reads the record of a plugin of testplugin.
func received(tb testing.TB, path string) plugintest.Option {
	return plugintest.WithReceived(func() ([]string, error) {
		var ids []string
		for _, b := range testplugin.Received(tb, path) {
			ids = append(ids, b.IDs...)
		}
		return ids, nil
	})
}

// TestScriptedConforms tests a plugin on pluginsdk that has every capability. Only rules
// about variables and configurations are skipped.
func TestScriptedConforms(t *testing.T) {
	path := testplugin.Install(t, "scripted")
	report, err := plugintest.Check(t.Context(), plugintest.Binary(path, testEnviron(t)...),
		append(inputs(), received(t, path), plugintest.WithEnv("TESTPLUGIN_CANARY=yes"), patient)...)
	if err != nil {
		t.Fatal(err)
	}
	// It does not ask for its variables at its start, and it reads no configuration.
	checkSkipped(t, report, "describe.env-at-start", "configure.refused", "configure.diagnostics", "process.result", "process.accounted")
}

// TestProcessorConforms tests a processor plugin that has every capability, and answers
// with patches or whole batches.
func TestProcessorConforms(t *testing.T) {
	for _, filtered := range []string{"filtered", "whole filtered"} {
		path := testplugin.Install(t, "processor")
		report, err := plugintest.Check(t.Context(), plugintest.Binary(path, testEnviron(t)...),
			append(inputs(), plugintest.WithInput(plugintest.Filtered, named(strings.Fields(filtered)...)), plugintest.WithEnv("TESTPLUGIN_CANARY=yes"), patient)...)
		if err != nil {
			t.Fatal(err)
		}
		checkSkipped(t, report, "describe.env-at-start", "configure.refused", "configure.diagnostics", "export.partial")
	}
}

// checkSkipped wants no failed rules, and no skipped rules but some.
func checkSkipped(t *testing.T, report *plugintest.Report, may ...string) {
	t.Helper()
	var skipped []string
	for _, result := range report.Results {
		switch result.Status {
		case plugintest.Fail:
			t.Errorf("%s: %s", result.Rule, result.Detail)
		case plugintest.Skip:
			skipped = append(skipped, result.Rule)
		case plugintest.Pass:
		}
	}
	if more := slices.DeleteFunc(skipped, func(rule string) bool { return slices.Contains(may, rule) }); len(more) > 0 {
		t.Errorf("%v are skipped, but apply to this plugin", more)
	}
}

// TestStockConforms tests a plugin on go-plugin's own server, without Lifecycle.
func TestStockConforms(t *testing.T) {
	plugintest.Conformance(t, plugintest.Binary(testplugin.Install(t, "stock"), testEnviron(t)...), patient)
}

// TestConsoleConforms builds the console plugin as users do, and tests it. go test does
// not cache the result, because the binary is new each time.
func TestConsoleConforms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console")
	build := exec.Command("go", "build", "-o", path, "../../plugins/console")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	plugintest.Conformance(t, plugintest.Binary(path), plugintest.WithEnv("SERVE_CONSOLE_OUTPUT="+t.TempDir()), patient)
}

// failureTexts has parts of reports, by mode: the fault, the value seen, the remedy. A text
// with " ... " has two parts.
var failureTexts = map[string]string{
	"exit":       "no handshake on standard output: it ended with exit status 3",
	"hello":      `first line of standard output is "hello, world"; want 1|1|unix|PATH|grpc and nothing before it: print to standard error`,
	"fickle":     "want one answer: a host relies on the first",
	"rude":       "want an answer with a diagnostic: an operator reads it",
	"crowded":    `answered RESOURCE_EXHAUSTED ("too many calls"), want OK`,
	"overreach":  `the patch of a batch of `,
	"multiplier": "which the batch had not: a processor may drop spans and must not add any",
	"swallower":  "spans are missing in the result, and the trailers servetrace-filtered count 0: name each processor that dropped spans",
	"miscount":   `trailer servetrace-filtered: "sampler=some": want PROCESSOR=COUNT`,
	// Between them is the plugin's answer at the deadline, or the end of the suite's patience.
	"stubborn": `Shutdown after input "stuck", which was cut off: ... ; want the call to return when its context ends`,
}

// TestWrongPlugins checks that each fault breaks its rules, and no other rules. For a
// plugin with a star all rules are tried, for other plugins only its rules and the
// rules that they build upon. -short leaves out plugins without a star.
func TestWrongPlugins(t *testing.T) {
	for _, test := range []struct{ mode, fails string }{
		{"exit", "handshake.line"},
		{"hello", "handshake.line"},
		{"noise:600", "handshake.line"},
		{"netrpc", "handshake.line"},
		{"tomorrow", "handshake.version"},
		{"certificate", "handshake.plain"},
		{"elsewhere", "handshake.socket"},
		{"parrot", "handshake.newer-host handshake.other-host"},
		{"strict", "handshake.newer-host"},
		{"cookieless", "handshake.cookie"},
		{"unhealthy", "health.served"},
		{"*uncontrolled", "goplugin.controller"},
		{"unstdio", "goplugin.stdio"},
		{"fickle", "describe.repeatable"},
		{"shouting", "describe.name"},
		{"strange", "describe.kind"},
		{"greedy", "describe.variables"},
		{"negative", "describe.limits"},
		{"dialer", "describe.offline"},
		{"premature", "describe.env-at-start"},
		{"undeclared", "configure.variables configure.accepted"},
		{"needy", "configure.bare"},
		{"rude", "configure.refused"},
		{"forgetful", "configure.once"},
		{"grumbler", "configure.diagnostics"},
		{"permanent", "export.delivered"},
		{"*queue", "export.received"},
		{"eager", "export.unconfigured"},
		{"emptyhanded", "export.empty"},
		{"narrow", "export.most-bytes export.large-span"},
		{"brittle", "export.malformed"},
		{"hopeful", "export.malformed"},
		{"conservative", "export.unknown-fields"},
		{"formal", "export.metadata"},
		{"oncer", "export.repeated"},
		{"crowded", "export.concurrent"},
		{"softhearted", "export.permanent"},
		{"hardhearted", "export.retryable"},
		{"stubborn", "export.cancelled export.deadline"},
		{"garbled", "export.answers"},
		{"boaster", "export.partial"},
		{"miscount", "export.filtered"},
		{"inflator", "export.received"},
		{"overreach", "process.result"},
		{"nonsense", "process.result"},
		{"multiplier", "process.result"},
		{"swallower", "process.accounted"},
		{"*exporting", "export.delivered"},
		{"flushless", "flush.answered flush.overlapping"},
		{"leftover", "flush.answered"},
		{"unstoppable", "shutdown.answered"},
		{"*zombie", "shutdown.export"},
		{"badstatus", "shutdown.unconfigured shutdown.twice end.released end.sigterm"},
		{"litter", "end.files"},
		{"*undying", "end.stdin end.host-death"},
		{"sigtermdeaf", "end.sigterm"},
		{"abrupt", "end.drain"},
		{"interrupted", "end.sigint"},
		{"echo", "output.handshake-once"},
		{"flood:10", "output.bounded"},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			mode, all := strings.CutPrefix(test.mode, "*")
			if testing.Short() && !all {
				t.Skip("-short")
			}
			path := testplugin.Install(t, mode)
			opts := []plugintest.Option{plugintest.WithEnv("TESTPLUGIN_CANARY=yes")}
			if !all {
				opts = append(opts, plugintest.WithRules(strings.Fields(test.fails)...))
			}
			switch mode {
			case "grumbler": // the rule judges the answers to other rules
				opts = append(opts, plugintest.WithRules("configure.*"))
			case "undeclared":
				opts = append(opts, plugintest.WithEnv("ACME_TOKEN=secret"))
			case "queue", "inflator":
				opts = append(opts, received(t, path))
			case "softhearted", "hardhearted", "abrupt":
				opts = append(opts, inputs()...)
			case "stubborn":
				opts = append(opts, plugintest.WithInput(plugintest.Stuck, named("stuck")))
			}
			report, err := plugintest.Check(t.Context(), plugintest.Binary(path, testEnviron(t)...), opts...)
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, result := range report.Results {
				if result.Status == plugintest.Fail {
					failed = append(failed, result.Rule)
				}
			}
			var text bytes.Buffer
			if err := report.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(failed, " "); got != test.fails {
				t.Errorf("fails by %q, want %q:\n%s", got, test.fails, text.String())
			}
			for want := range strings.SplitSeq(failureTexts[mode], " ... ") {
				if !strings.Contains(text.String(), want) {
					t.Errorf("the report lacks %q:\n%s", want, text.String())
				}
			}
		})
	}
}

// TestSlowRefusal tests a plugin that ends some time after it has refused a host.
func TestSlowRefusal(t *testing.T) {
	plugintest.Conformance(t, plugintest.Binary(testplugin.Install(t, "hesitant"), testEnviron(t)...), plugintest.WithRules("handshake.other-host"), patient)
}

// TestKilledSuiteLeavesNoPlugin uses a plugin that ignores signals and the end of its
// standard input.
func TestKilledSuiteLeavesNoPlugin(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children with their parent")
	}
	plugin := testplugin.Install(t, "immortal")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	suite := exec.Command(exe)
	tmp, err := os.MkdirTemp("", "pt") // short, for sockets; a killed process leaves its folder
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	suite.Env = append(suite.Environ(), suiteOver+"="+plugin, "TMPDIR="+tmp)
	suite.Stderr = t.Output()
	if err := suite.Start(); err != nil {
		t.Fatal(err)
	}
	// The second batch comes from end.sigterm, which then sends SIGTERM.
	testplugin.WaitFor(t, "a batch", func() bool { return len(testplugin.Received(t, plugin)) >= 2 })
	if err := suite.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = suite.Wait() // killed
	pids := map[int]bool{}
	for _, b := range testplugin.Received(t, plugin) {
		pids[b.PID] = true
	}
	for pid := range pids {
		testplugin.WaitFor(t, "the plugin's end", func() bool { return testplugin.Gone(pid) })
	}
}

// TestNoPlugin tests a program that is no plugin. The report has the reason, and no list
// of the rules that were not tried.
func TestNoPlugin(t *testing.T) {
	report, err := plugintest.Check(t.Context(), plugintest.Binary(testplugin.Install(t, "hello"), testEnviron(t)...), patient)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if report.Failed() == 0 || !strings.Contains(text.String(), "more rules build upon failed rules and were not tried.") ||
		strings.Contains(text.String(), "not tried: it builds upon") {
		t.Errorf("%d rules failed, the report is\n%s", report.Failed(), text.String())
	}
}

// TestReports writes a report with all outcomes as text and as XML.
func TestReports(t *testing.T) {
	report := &plugintest.Report{Target: "/plugins/acme", Results: []plugintest.Result{
		{Rule: "a.first", Title: "The first", Took: 1500000},
		{Rule: "a.second", Title: "The second", Status: plugintest.Fail, Detail: "saw <1>\nwant\t2 \x00"},
		{Rule: "a.third", Title: "The third", Status: plugintest.Skip, Detail: "not here"},
	}}
	var text, junit bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const wantText = "pass  a.first   The first\nFAIL  a.second  The second\n                  saw <1>\n                  want    2 \x00\n" +
		"skip  a.third   The third\n                  not here\n\n/plugins/acme: 1 passed, 1 failed, 1 skipped\n"
	if text.String() != wantText {
		t.Errorf("text is\n%q, want\n%q", text.String(), wantText)
	}
	if err := report.WriteJUnit(&junit); err != nil {
		t.Fatal(err)
	}
	const wantJUnit = xml.Header + `<testsuites>
  <testsuite name="/plugins/acme" tests="3" failures="1" errors="0" skipped="1" time="0.002">
    <testcase classname="servetrace.conformance" name="a.first" time="0.002"></testcase>
    <testcase classname="servetrace.conformance" name="a.second" time="0.000">
      <failure message="The second">saw &lt;1&gt;&#xA;want&#x9;2 ` + "\uFFFD" + `</failure>
    </testcase>
    <testcase classname="servetrace.conformance" name="a.third" time="0.000">
      <skipped message="not here"></skipped>
    </testcase>
  </testsuite>
</testsuites>
`
	if junit.String() != wantJUnit {
		t.Errorf("JUnit is\n%s, want\n%s", junit.String(), wantJUnit)
	}
}
