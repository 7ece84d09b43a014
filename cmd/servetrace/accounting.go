package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/total"
)

// accounting counts the spans that a command sends to a plugin, by their outcomes.
type accounting struct {
	plugin    string // the plugin's name in the list, in quotes, and its own name and version
	processor bool   // the plugin is a processor, which returns the spans
	spans     int    // spans to send
	batches   int    // batches that were sent
	delivered int
	filtered  map[string]int // spans that processors in the plugin dropped on purpose, by processor
	// rejected counts spans that are lost. failed counts spans that a host would send again.
	// Each list has the reasons in the order of their first occurrence.
	rejected, failed []reason
	remarks          []string // remarks about answers, such as "an answer cannot be read"
}

// reason is the cause of an outcome, and the number of spans with this cause.
type reason struct {
	code, text string
	spans      int
}

func newAccounting(is host.Inspection, requests []request) *accounting {
	b := &accounting{plugin: fmt.Sprintf("%q", is.Name), processor: is.About.Processor, filtered: map[string]int{}}
	if is.Described {
		b.plugin += fmt.Sprintf(" (%s)", printable.Text(is.About.Name+" "+is.About.Version))
	}
	for _, r := range requests {
		b.spans += r.spans
	}
	return b
}

// partialSuccess is the code under which a host counts the spans that a plugin rejects in an
// answer without an error.
const partialSuccess = "PARTIAL_SUCCESS"

// settle counts the spans of a batch by the plugin's answer. If the answer has larger
// numbers, settle counts only as many spans as the batch has.
func (b *accounting) settle(spans int, ans host.Answer) {
	b.batches++
	take := func(n int) int {
		n = min(n, spans)
		spans -= n
		return n
	}
	switch {
	case ans.Err != nil && ans.Final:
		b.rejected = count(b.rejected, ans.Code, ans.Err.Error(), take(spans))
	case ans.Err != nil:
		b.failed = count(b.failed, ans.Code, ans.Err.Error(), take(spans))
	}
	for _, processor := range slices.Sorted(maps.Keys(ans.Filtered)) {
		b.filtered[processor] += take(int(ans.Filtered[processor]))
	}
	if ans.Rejected > 0 {
		b.rejected = count(b.rejected, partialSuccess, ans.Remark, take(ans.Rejected))
	} else if ans.Remark != "" {
		b.remarks = append(b.remarks, "the back end reports: "+ans.Remark)
	}
	if ans.Unread != "" {
		b.remarks = append(b.remarks, "an answer cannot be read: "+ans.Unread)
	}
	b.delivered += spans
}

// count adds spans to the reason in the list, or appends the reason.
func count(list []reason, code, text string, spans int) []reason {
	for i := range list {
		if list[i].code == code && list[i].text == text {
			list[i].spans += spans
			return list
		}
	}
	return append(list, reason{code, text, spans})
}

func sum(list []reason) (spans int) {
	for _, r := range list {
		spans += r.spans
	}
	return spans
}

// unsent returns the number of spans that were not sent, because the command ended early.
func (b *accounting) unsent() int {
	return b.spans - b.delivered - sum(b.rejected) - sum(b.failed) - total.Of(b.filtered)
}

// verdict returns an error if spans were rejected, failed or not sent.
func (b *accounting) verdict() error {
	missing := sum(b.rejected) + sum(b.failed) + b.unsent()
	if missing == 0 {
		return nil
	}
	return fmt.Errorf("%d of %s not delivered", missing, counted(b.spans, "span"))
}

// write writes the accounting as text. from describes the origin of the spans.
func (b *accounting) write(w io.Writer, from string) error {
	if _, err := fmt.Fprintf(w, "%s %s, %s sent to plugin %s:\n",
		counted(b.spans, "span"), from, countedAs(b.batches, "batch", "batches"), b.plugin); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	accepted := "delivered"
	if b.processor {
		accepted = "passed"
	}
	line := func(what string, spans int, why string) {
		if spans > 0 || what == accepted {
			fmt.Fprintf(table, "%d\t %s\n", spans, strings.TrimSpace(what+"  "+printable.Text(why)))
		}
	}
	line(accepted, b.delivered, "")
	for _, processor := range slices.Sorted(maps.Keys(b.filtered)) {
		line("filtered", b.filtered[processor], "by processor "+processor)
	}
	for _, r := range b.rejected {
		line("rejected", r.spans, r.code+": "+r.text)
	}
	for _, r := range b.failed {
		line("not taken", r.spans, r.code+": "+r.text+" (a service would send them again)")
	}
	line("not sent", b.unsent(), "")
	if err := table.Flush(); err != nil {
		return err
	}
	for _, remark := range b.remarks {
		if _, err := fmt.Fprintln(w, " ", printable.Text(remark)); err != nil {
			return err
		}
	}
	return nil
}

func counted(n int, noun string) string { return countedAs(n, noun, noun+"s") }

func countedAs(n int, one, more string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", one)
	}
	return fmt.Sprintf("%d %s", n, more)
}
