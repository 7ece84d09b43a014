package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
)

// sampledCurl is a curl command that sends a request with a sampled trace context, so that
// the service makes spans in spite of its sampling ratio.
const sampledCurl = "curl -H 'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' http://localhost:8000/"

// checkService checks a running service by its status page, which is at the address at.
func checkService(ctx context.Context, r *report, at string) {
	status, err := askStatus(ctx, at)
	if err != nil {
		r.add(finding{Check: "service", Result: failed, Text: strings.Replace(err.Error(), "--addr", "--admin", 1), Next: "curl -v " + shellWord(at)})
		return
	}
	r.add(finding{
		Check: "service", Result: passed,
		Text: fmt.Sprintf("%s, pid %d, up %s, servetrace %s", status.Process.Program, status.Process.PID, admin.Ago(status.Time, status.Process.Started), status.Process.Version),
	})
	checkServiceSpans(r, status)
	for _, p := range status.Plugins {
		checkServicePlugin(r, p, status)
	}
}

// checkServiceSpans checks the sampler and the counts of spans that reach the host.
func checkServiceSpans(r *report, status admin.Status) {
	add := func(check string, is result, text, next string) {
		r.add(finding{Check: check, Result: is, Text: text, Next: next})
	}
	if len(status.Plugins) == 0 {
		add("list", failed, "the service has no plugins: tracing is off, or its folders have none; its log line \"serving\" has the reason",
			restart("export "+host.EnvPlugins+"=console"))
		return
	}
	sampled := true
	if s := status.Sampling; s != nil {
		sampled = s.Ratio > 0
		text := fmt.Sprintf("%v of root traces (%s)", s.Ratio, s.Sampler)
		switch {
		case !sampled:
			add("sampling", failed, "no root trace is sampled ("+s.Sampler+")", restart("export SERVE_TRACING_SAMPLING_RATIO=1"))
		case s.Ratio <= rareRatio:
			add("sampling", warned, text+": a test of few requests may show no span", restart("export SERVE_TRACING_SAMPLING_RATIO=1"))
		default:
			add("sampling", passed, text, "")
		}
	}
	ended := fmt.Sprintf("%d ended, %d accepted", status.Spans.Ended, status.Spans.Accepted)
	switch {
	case status.BooksError != "":
		add("spans", failed, status.BooksError+"; this is a bug of servetrace", "")
	case status.Spans.Ended == 0 && status.Relay != nil:
		add("spans", failed, "no span has come from a program", "")
	case status.Spans.Ended == 0 && sampled:
		add("spans", failed, "no span has ended: no request came, or its callers do not sample", sampledCurl)
	case len(status.Spans.Refused) > 0:
		add("spans", warned, ended+", refused: "+countsOf(status.Spans.Refused), "")
	default:
		add("spans", passed, ended, "")
	}
}

// nextOfService returns the command for an error of a running service, or "" if the error has
// no known advice.
func nextOfService(text string) string {
	next := nextIn(text)
	if next == "" {
		return ""
	}
	return restart(next)
}

// restart returns a command with a shell comment that the service must be started again.
func restart(command string) string { return command + " # and start the service again" }

// checkServicePlugin checks a plugin of a running service by its state, its last error and
// its lost spans.
func checkServicePlugin(r *report, p admin.Plugin, status admin.Status) {
	f := finding{Plugin: p.Name, Check: "service", Result: passed, Next: "servetrace doctor # in the environment of the service"}
	f.Text = fmt.Sprintf("%s, %d delivered, %d waiting", p.State, p.Spans.Delivered, p.Spans.Waiting)
	switch {
	case p.State == host.StateStopped.String():
		f.Result, f.Text = skipped, "it has left the list"
	case p.State != host.StateReady.String():
		f.Result, f.Text = failed, p.State+": "+cmp.Or(p.Cause, p.LastError, "no cause is known")
		f.Next = cmp.Or(nextOfService(p.Cause+"\n"+p.LastError), f.Next)
	case p.LastErrorTime.After(p.LastSuccess):
		f.Result, f.Text = failed, fmt.Sprintf("the last call failed, %s ago: %s", admin.Ago(status.Time, p.LastErrorTime), p.LastError)
		f.Next = cmp.Or(nextOfService(p.LastError), f.Next)
	case p.Changed:
		f.Result, f.Text, f.Next = warned, "the file is not the one that runs any more", fmt.Sprintf("kill -HUP %d", status.Process.PID)
	case p.Spans.Lost() > 0:
		f.Result = warned
	default:
		f.Next = ""
	}
	if p.Spans.Lost() > 0 {
		f.Text += fmt.Sprintf("; lost: rejected %s, dropped %s", countsOf(p.Spans.Rejected), countsOf(p.Spans.Dropped))
	}
	if f.Result == failed || p.Spans.Lost() > 0 {
		for _, failure := range p.Failures {
			f.Details = append(f.Details, fmt.Sprintf("%s: %s", failure.Code, failure.Reason))
		}
	}
	r.add(f)
}
