package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/internal/printable"
)

// writeStatus writes the service, a table of its plugins, and each plugin's details.
func writeStatus(w io.Writer, s admin.Status) error {
	service := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(service, "service\t%s, pid %d, up %s, servetrace %s\n",
		printable.Text(s.Process.Program), s.Process.PID, admin.Ago(s.Time, s.Process.Started), printable.Text(s.Process.Version))
	if s.Sampling != nil {
		fmt.Fprintf(service, "sampled\t%v of root traces (%s)\n", s.Sampling.Ratio, printable.Text(s.Sampling.Sampler))
	}
	fmt.Fprintf(service, "spans\t%d ended, %d accepted, refused %s\n", s.Spans.Ended, s.Spans.Accepted, countsOf(s.Spans.Refused))
	fmt.Fprintf(service, "memory\t%s of %s\n", admin.Bytes(s.Queue.Bytes), admin.Bytes(s.Queue.LimitBytes))
	if s.Spool != nil {
		fmt.Fprintf(service, "spool\t%s of %s\n", admin.Bytes(s.Spool.Bytes), admin.Bytes(s.Spool.LimitBytes))
		if s.Spool.Failing {
			fmt.Fprintf(service, "\tcannot be written, spans wait in memory only: %s\n", printable.Text(s.Spool.LastError))
		}
	}
	if r := s.Relay; r != nil {
		fmt.Fprintf(service, "relay\t%s\n", printable.Text(strings.Join(r.Endpoints, ", ")))
		fmt.Fprintf(service, "\t%d spans pushed back, connections closed by a limit: %s\n", s.Spans.PushedBack, countsOf(r.Closed))
		fmt.Fprintf(service, "\tspans lost by senders: %s\n", countsOf(r.Lost))
	}
	if s.BooksError != "" {
		fmt.Fprintf(service, "account\t%s; this is a bug of servetrace\n", printable.Text(s.BooksError))
	}
	if len(s.Plugins) == 0 {
		fmt.Fprint(service, "plugins\tnone: tracing is off, or its folders have none\n")
	}
	if err := service.Flush(); err != nil {
		return err
	}
	if err := writeRelay(w, s.Relay); err != nil {
		return err
	}
	if err := writeDeployments(w, s.Deployments); err != nil || len(s.Plugins) == 0 {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\nPLUGIN\tSTATE\tFOR\tDELIVERED\tWAITING\tIN FLIGHT\tLOST\tSTARTS\tCRASHES\n")
	for _, p := range s.Plugins {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", printable.Text(p.Name), printable.Text(p.State), admin.Ago(s.Time, p.Since),
			p.Spans.Done(), p.Spans.Waiting, p.Spans.InFlight, p.Spans.Lost(), p.Starts, p.Crashes)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, p := range s.Plugins {
		if err := writePluginStatus(w, s.Time, p); err != nil {
			return err
		}
	}
	return nil
}

// writeRelay writes a line for each protocol of a relay, and for each sender.
func writeRelay(w io.Writer, r *admin.Relay) error {
	if r == nil {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\nPROTOCOL\tCONNECTIONS\tSPANS\tREQUESTS\n")
	for _, protocol := range slices.Sorted(maps.Keys(r.Connections)) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", printable.Text(protocol), r.Connections[protocol], r.Spans[protocol], countsOf(r.Requests[protocol]))
	}
	if len(r.Senders) > 0 {
		fmt.Fprint(table, "\nSENDER\tCONNECTIONS\tSPANS\tREQUESTS\tPUSHED BACK\tLOST\n")
	}
	for _, one := range r.Senders {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\n", printable.Text(one.Name), one.Connections, one.Spans, one.Requests, one.PushedBack, countsOf(one.Lost))
	}
	return table.Flush()
}

// writeDeployments writes a table with a line for each deployment. Below the table are the
// targets of deployments that other processes run, and the errors of deployments.
func writeDeployments(w io.Writer, deployments []admin.Deployment) error {
	if len(deployments) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var below strings.Builder
	fmt.Fprint(table, "\nAPP\tDEPLOYMENT\tSTATE\tREPLICAS\tONGOING\tQUEUED\n")
	for _, d := range deployments {
		running := 0
		for _, r := range d.Replicas {
			if r.State == "RUNNING" {
				running++
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d of %d running\t%d\t%d\n", printable.Text(d.App), printable.Text(d.Name), printable.Text(d.State),
			running, d.NumReplicas, d.Ongoing(), d.Queued)
		if d.Target != "" {
			fmt.Fprintf(&below, "%s/%s: in other processes, at %s\n", printable.Text(d.App), printable.Text(d.Name), printable.Text(d.Target))
		}
		if d.Error != "" {
			fmt.Fprintf(&below, "%s/%s: %s\n", printable.Text(d.App), printable.Text(d.Name), printable.Text(d.Error))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, below.String())
	return err
}

// writePluginStatus writes the details of a plugin that are not empty.
func writePluginStatus(w io.Writer, now time.Time, p admin.Plugin) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(table, "  %s\t%s\n", what, printable.Text(text))
		}
	}
	ago := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return admin.Ago(now, t) + " ago"
	}
	fmt.Fprintf(table, "\n%s\n", printable.Text(p.Name))
	if p.Kind == "processor" {
		line("kind", strings.TrimSuffix("processor, fails "+p.Fail+", of exporter "+p.Exporter, ", of exporter "))
	}
	line("cause", p.Cause)
	if p.Attached {
		line("attached to", p.Path)
	} else {
		line("path", p.Path)
	}
	line("function", p.Function)
	line("pinned to", p.Digest)
	if p.PID != 0 {
		line("pid", fmt.Sprint(p.PID))
	}
	if p.Changed {
		line("file", "is not the one that runs any more: SIGHUP replaces it")
	}
	line("version", p.PluginVersion)
	line("SDK", p.SDK)
	line("last success", cmp.Or(ago(p.LastSuccess), "never"))
	line("last crash", ago(p.LastCrash))
	if !p.HeldUntil.IsZero() {
		line("left alone", fmt.Sprintf("for %s more, as its back end has asked", admin.Ago(p.HeldUntil, now)))
	}
	if p.LastError != "" && !p.LastErrorTime.IsZero() {
		line("last error", fmt.Sprintf("%s, %s", p.LastError, ago(p.LastErrorTime)))
	} else {
		line("last error", p.LastError)
	}
	for _, f := range p.Failures {
		line(printable.Text(f.Code), fmt.Sprintf("%sthe last %s: %s", lostBy(f), ago(f.Last), f.Reason))
	}
	line("variables", cmp.Or(strings.Join(p.Granted, ", "), "none"))
	writeSpanCounts(line, p)
	line("held", fmt.Sprintf("%s, %s in flight", admin.Bytes(p.HeldBytes), counted(p.Calls.InFlight, "call")))
	return table.Flush()
}

// writeSpanCounts writes the delivery accounting of a plugin, and the counts of its failures.
func writeSpanCounts(line func(what, text string), p admin.Plugin) {
	line("accepted", fmt.Sprint(p.Spans.Accepted))
	if p.Kind == "processor" {
		line("passed", fmt.Sprint(p.Spans.Done()))
		line("bypassed", countsOf(p.Spans.Bypassed))
	} else {
		line("rejected", countsOf(p.Spans.Rejected))
	}
	line("filtered", countsOf(p.Spans.Filtered))
	line("dropped", countsOf(p.Spans.Dropped))
	line("calls", countsOf(p.Calls.Ended))
	number := func(what string, n uint64, of string) {
		if n > 0 {
			line(what, fmt.Sprint(n, " ", of))
		}
	}
	number("recovered", p.Spans.Recovered, "spans of an earlier process")
	number("quarantined", p.QuarantinedBatches, "batches")
	number("not kept", p.UnkeptFiles, "files of crashes, see the log")
	number("not logged", p.OutputSuppressedLines, "lines of its output")
	number("not printed", p.OutputDroppedLines, "lines of its output")
}

func lostBy(f admin.Failure) string {
	text := counted(int(min(f.Calls, math.MaxInt32)), "call") + ", "
	if f.Spans > 0 {
		text = fmt.Sprintf("%d spans lost, ", f.Spans) + text
	}
	return text
}

// countsOf returns counts in the order of their names: "a 1, b 2", or "0".
func countsOf(counts map[string]uint64) string { return cmp.Or(admin.Counts(counts), "0") }
