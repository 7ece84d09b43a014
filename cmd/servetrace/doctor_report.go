package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/internal/waterfall"
)

// result is the result of a check.
type result string

const (
	passed  result = "ok"
	warned  result = "warning"
	failed  result = "error"
	skipped result = "skipped"
)

// finding is the result of one check.
type finding struct {
	// Plugin is the name of the checked plugin. Empty for a check of the settings or a service.
	Plugin string `json:"plugin,omitempty"`
	Check  string `json:"check"`
	Result result `json:"result"`
	Text   string `json:"text"`
	// Details are further facts. Each is printed in a line of its own.
	Details []string `json:"details,omitempty"`
	// Next is the command to type next, for a POSIX shell.
	Next string `json:"next,omitempty"`
}

// report collects findings. If w is set, it writes each finding as soon as it is added.
type report struct {
	Findings []finding `json:"findings"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`

	w       io.Writer         // output for text, or nil
	marks   map[result]string // texts before the findings in w
	err     error             // error of a write to w
	command string            // the command that a user types to run this program
}

// typedCommand returns the command that a user types to run this program. first is os.Args[0].
// The Python package sets it to a command, such as "python3 -m servetrace".
func typedCommand(first string) string {
	if strings.HasSuffix(first, " -m servetrace") {
		return first
	}
	return "servetrace"
}

// add adds a finding, and writes it.
func (r *report) add(f finding) {
	if rest, own := strings.CutPrefix(f.Next, "servetrace "); own {
		f.Next = r.command + " " + rest
	}
	last := ""
	if len(r.Findings) > 0 {
		last = r.Findings[len(r.Findings)-1].Plugin
	}
	r.Findings = append(r.Findings, f)
	switch f.Result {
	case failed:
		r.Errors++
	case warned:
		r.Warnings++
	}
	if r.w == nil {
		return
	}
	var text strings.Builder
	if f.Plugin != last && f.Plugin != "" {
		fmt.Fprintf(&text, "plugin %s\n", printable.Text(f.Plugin))
	}
	first, more := lines(f.Text)
	fmt.Fprintf(&text, "%s %-13s %s\n", r.marks[f.Result], f.Check, first)
	for _, detail := range append(more, f.Details...) {
		fmt.Fprintf(&text, "    %s\n", printable.Text(detail))
	}
	if f.Next != "" {
		fmt.Fprintf(&text, "    next: %s\n", printable.Text(f.Next))
	}
	_, err := io.WriteString(r.w, text.String())
	r.err = errors.Join(r.err, err)
}

// lines returns the first line of a text, and the lines after it.
func lines(text string) (first string, more []string) {
	all := strings.Split(text, "\n")
	return printable.Text(all[0]), all[1:]
}

// verdict returns an error if there is a finding with an error.
func (r *report) verdict() error {
	if r.Errors == 0 {
		return nil
	}
	return fmt.Errorf("%s failed", counted(r.Errors, "check"))
}

// The texts before findings. A terminal that shows UTF-8 gets signs, and any other output
// gets words.
var (
	signs = map[result]string{passed: "✓", warned: "!", failed: "✗", skipped: "-"}
	words = map[result]string{passed: "ok      ", warned: "WARNING ", failed: "ERROR   ", skipped: "skipped "}
)

// marksFor returns the texts before findings for an output.
func marksFor(w io.Writer, getenv func(string) string) map[result]string {
	if !progress.IsTerminal(w) || waterfall.LookOf(getenv, w, false, 0).ASCII {
		return words
	}
	return signs
}
