package plugintest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Status is the outcome of a rule.
type Status int

// The outcomes.
const (
	// Pass means that the plugin keeps the rule.
	Pass Status = iota
	// Fail means that the plugin breaks the rule.
	Fail
	// Skip means that the rule does not apply to the plugin, or could not be tried. A
	// skipped rule counts neither as passed nor as failed.
	Skip
)

// String returns the status in reports.
func (s Status) String() string { return [...]string{"pass", "FAIL", "skip"}[s] }

// Result is the outcome of one rule.
type Result struct {
	// Rule is the rule's id, which never changes: "export.empty".
	Rule string
	// Title describes the behaviour of a plugin that keeps the rule, in one line.
	Title string
	// Status is the outcome.
	Status Status
	// Detail is the reason for which the rule failed or was skipped, in one or more lines.
	// It is empty if the rule passed.
	Detail string
	// Option is the option of this package without which the rule was skipped. Flag is the
	// flag of "servetrace plugin test" with the same purpose. Each is empty if there is
	// none.
	Option, Flag string
	// Took is the duration of the rule.
	Took time.Duration

	untried bool // skipped because the plugin breaks a rule that this rule builds upon
}

// inGo returns the detail, with the name of the missing option for the author of a Go
// test.
func (r Result) inGo() string {
	if r.Option == "" {
		return r.Detail
	}
	return r.Detail + "; see " + r.Option
}

// onCommandLine returns the detail, with the name of the missing flag for a user of the
// command.
func (r Result) onCommandLine() string {
	switch {
	case r.Flag != "":
		return r.Detail + "; see " + r.Flag
	case r.Option != "":
		return r.Detail + "; a test in Go can provide it (package plugintest)"
	}
	return r.Detail
}

// Report is the outcome of all rules, in the order of the table.
type Report struct {
	// Target is the plugin: a path, or a Spec's name.
	Target string
	// Results has one entry for each rule.
	Results []Result
}

// Failed counts the rules that the plugin does not keep.
func (r *Report) Failed() int { return r.count(Fail) }

func (r *Report) count(status Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == status {
			n++
		}
	}
	return n
}

// took returns the sum of the durations of all rules. It is longer than the run, because
// several rules run at the same time.
func (r *Report) took() time.Duration {
	var sum time.Duration
	for _, result := range r.Results {
		sum += result.Took
	}
	return sum
}

// WriteText writes the report as text. Each rule has a line, followed by the reason if it
// failed or was skipped. One line counts the rules that were not tried because the plugin
// breaks a rule that they build upon. The last line has the numbers of rules that passed,
// failed and were skipped.
func (r *Report) WriteText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	untried := 0
	for _, result := range r.Results {
		if result.untried {
			untried++
			continue
		}
		fmt.Fprintf(table, "%v\t%s\t%s\n", result.Status, result.Rule, result.Title)
		for line := range strings.SplitSeq(result.onCommandLine(), "\n") {
			if line != "" {
				fmt.Fprintf(table, "\t\t  %s\n", strings.ReplaceAll(line, "\t", "    "))
			}
		}
	}
	if untried > 0 {
		fmt.Fprintf(table, "\n%d more rules build upon failed rules and were not tried.\n", untried)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s: %d passed, %d failed, %d skipped\n", r.Target, r.count(Pass), r.Failed(), r.count(Skip))
	return err
}

// junitSuites is the root element of a JUnit report, in the schema that most CI systems
// read: https://github.com/testmoapp/junitxml
type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr"`
	Failure *junitReason `xml:"failure"`
	Skipped *junitReason `xml:"skipped"`
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as XML in the form of JUnit. It has one testsuite with the
// name of the target, and a testcase for each rule, with the rule's id as its name. The
// time of the testsuite is the sum of the times of all rules.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{
		Name: r.Target, Tests: len(r.Results), Failures: r.Failed(), Skipped: r.count(Skip), Time: seconds(r.took()),
	}
	for _, result := range r.Results {
		test := junitCase{Class: "servetrace.conformance", Name: result.Rule, Time: seconds(result.Took)}
		switch result.Status {
		case Fail:
			test.Failure = &junitReason{Message: result.Title, Text: result.Detail}
		case Skip:
			test.Skipped = &junitReason{Message: firstLine(result.onCommandLine())}
		case Pass:
		}
		suite.Cases = append(suite.Cases, test)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
