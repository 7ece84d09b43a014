package plugintest

import (
	"context"
	"fmt"
	"path"
	"slices"
)

// rule is one rule of the contract between host and plugin, and its check.
type rule struct {
	// id has the form GROUP.NAME, in lower case. It never changes, because users compare
	// reports of different versions by the ids.
	id string
	// title describes the behaviour of a plugin that keeps the rule, in one line.
	title string
	// needs has the conditions under which the rule applies. Otherwise the rule is skipped.
	needs need
	// after lists the rules that this rule builds upon. They come earlier in the table. If
	// the plugin breaks one of them, this rule is skipped.
	after []string
	// last is true if the rule judges the plugin's answers in all other rules. It runs after
	// all rules without last.
	last bool
	// input is the outcome that the check provokes by WithInput or WithState. Empty if it
	// provokes none.
	input Input
	// check tests the plugin. It returns normally if the plugin keeps the rule, and
	// otherwise calls a method of t such as fatalf.
	check func(t *trial)
}

// need is a set of conditions, one for each bit.
type need int

const (
	process   need = 1 << iota // the plugin runs in a process of its own
	lifecycle                  // the plugin serves Lifecycle, so it is not a plain OTLP receiver
	exporter                   // the plugin is an exporter plugin
	processor                  // the plugin is a processor plugin
	provoked                   // the author has given a request or a state for the rule's input
)

// Values of the field after. Each has only the rules that a rule builds upon directly.
// The function rules adds the rules that these build upon.
var (
	shaken     = []string{"handshake.line"}
	connected  = []string{"handshake.version", "handshake.plain", "handshake.socket"}
	described  = []string{"describe.answered"}
	configured = []string{"describe.variables", "configure.accepted"}
	delivered  = []string{"export.delivered"}
	received   = []string{"export.received"}
	shutDown   = []string{"shutdown.answered"}
	released   = []string{"shutdown.answered", "end.released"}
)

// table lists the rules in the order of a plugin's life, but rules with the field last set
// are checked at the end.
var table = []rule{
	{id: "handshake.line", title: "The first line on standard output is the handshake, 1|1|unix|PATH|grpc",
		check: checkLine},
	{id: "handshake.version", title: "The handshake names go-plugin's core protocol 1 and protocol version 1",
		after: shaken, check: checkVersion},
	{id: "handshake.plain", title: "The handshake carries no certificate: there is no AutoMTLS",
		after: shaken, check: checkPlain},
	{id: "handshake.socket", title: "The socket lies in PLUGIN_UNIX_SOCKET_DIR, and accepts connections after the line",
		after: shaken, check: checkSocket},
	{id: "handshake.newer-host", title: "A host that offers other versions beside 1 gets 1",
		after: connected, check: checkNewerVersions},
	{id: "handshake.other-host", title: "A host that does not offer 1 is refused, or gets 1",
		needs: process, after: connected, check: checkOtherVersion},
	{id: "handshake.cookie", title: "Without the host's cookie it prints a message, and ends with a status that is not 0",
		needs: process, after: shaken, check: checkCookie},

	{id: "health.served", title: `grpc.health.v1.Health answers SERVING for "plugin", from the handshake on`,
		after: connected, check: checkHealth},
	{id: "goplugin.controller", title: "plugin.GRPCController's Shutdown ends the process within 2 s",
		after: connected, check: checkController},
	{id: "goplugin.stdio", title: "plugin.GRPCStdio's StreamStdio can be opened",
		after: connected, check: checkStdio},

	{id: "describe.answered", title: "Describe is answered before Configure, or with UNIMPLEMENTED by a plain OTLP receiver",
		after: connected, check: checkDescribe},
	{id: "describe.repeatable", title: "Describe always gives the same answer, also concurrently and after Configure",
		needs: lifecycle, after: described, check: checkRepeatable},
	{id: "describe.name", title: "The name has lower-case letters, digits and dashes; other texts have one line",
		needs: lifecycle, after: described, check: checkNames},
	{id: "describe.kind", title: "The kind is KIND_EXPORTER or KIND_PROCESSOR",
		needs: lifecycle, after: described, check: checkKind},
	{id: "describe.variables", title: "Variables are declared by name, or by prefix and star (three characters, a final underscore)",
		needs: lifecycle, after: described, check: checkPatterns},
	{id: "describe.limits", title: "Limits are zero, or possible for a host",
		needs: lifecycle, after: described, check: checkLimits},
	{id: "describe.offline", title: "Start and Describe do not touch the network",
		needs: process | lifecycle, after: described, check: checkOffline},
	{id: "describe.env-at-start", title: "With env_at_start it declares variables, whose presence at its start does not change Describe",
		needs: process | lifecycle, after: described, check: checkEnvAtStart},

	{id: "configure.variables", title: "Every variable of the test is declared by Describe",
		needs: lifecycle, after: described, check: checkDeclared},
	{id: "configure.accepted", title: "The operator's variables and configuration give no diagnostic of severity ERROR",
		needs: lifecycle, after: []string{"describe.variables"}, check: func(t *trial) { t.ready(asHost) }},
	{id: "configure.bare", title: "An empty Configure is accepted, or refused by a diagnostic of severity ERROR",
		needs: lifecycle, after: described, check: checkBare},
	{id: "configure.refused", title: "A wrong configuration gives a diagnostic of severity ERROR, and batches after it are refused",
		needs: lifecycle, after: described, check: checkBadConfig},

	{id: "export.delivered", title: "A batch of spans is answered OK",
		after: configured, check: func(t *trial) { checkWorks(t, asHost) }},
	{id: "export.received", title: "At an OK answer the spans have arrived, each once; of a processor: they are in the answer",
		after: delivered, check: checkReceived},
	{id: "export.unconfigured", title: "Export before Configure is refused, and a later Configure is accepted",
		needs: lifecycle, after: delivered, check: checkUnconfigured},
	{id: "export.empty", title: "A request without spans is answered OK",
		after: delivered, check: checkEmpty},
	{id: "export.most-bytes", title: "A batch of the declared size, or of 4 MiB less 64 KiB, is answered OK",
		after: delivered, check: checkMostBytes},
	{id: "export.most-spans", title: "A batch of the declared number of spans, or of 2048, is answered OK",
		after: delivered, check: checkMostSpans},
	{id: "export.large-span", title: "A span of 3 MiB is answered OK, or with a final code beyond the declared size",
		after: delivered, check: checkLargeSpan},
	{id: "export.malformed", title: "Bytes that are no OTLP get a final code, and the plugin lives on",
		after: delivered, check: checkMalformed},
	{id: "export.unknown-fields", title: "Spans with unknown fields are answered OK; in process and in a patch the fields stay",
		after: delivered, check: checkUnknownFields},
	{id: "export.metadata", title: "A batch is accepted with and without id and attempt, and with unknown metadata",
		after: delivered, check: checkMetadata},
	{id: "export.repeated", title: "A repeated batch, with attempt 2, is answered OK",
		after: delivered, check: checkRepeated},
	{id: "export.concurrent", title: "Concurrent calls, as many as declared or 64, are answered OK",
		after: received, check: checkConcurrent},
	{id: "export.permanent", title: "A batch that must not be sent again gets a final code",
		input: Permanent, needs: provoked, after: delivered, check: checkPermanent},
	{id: "export.retryable", title: "A batch that may be sent again gets a code that OTLP retries",
		input: Retryable, needs: provoked, after: delivered, check: checkRetryable},
	{id: "export.cancelled", title: "A cancelled call ends, and the plugin lives on",
		input: Stuck, after: delivered, check: func(t *trial) { checkCut(t, cancelAfter) }},
	{id: "export.deadline", title: "A call beyond its deadline ends, and the plugin lives on",
		input: Stuck, after: delivered, check: func(t *trial) { checkCut(t, context.WithTimeout) }},

	{id: "configure.once", title: "A second Configure is refused, and changes nothing",
		needs: lifecycle, after: delivered, check: checkConfiguredOnce},
	{id: "configure.newer-host", title: "Fields of a newer host in Describe and Configure are ignored",
		needs: lifecycle, after: delivered, check: checkNewerHost},
	{id: "start.path-only", title: "It works if PATH is the only variable beside the handshake's",
		after: delivered, check: func(t *trial) { checkWorks(t, startOptions{pathOnly: true}) }},
	{id: "start.unshared", title: "It works if the host does not share its standard output",
		needs: process, after: delivered, check: func(t *trial) { checkWorks(t, startOptions{unshared: true}) }},
	{id: "start.side-by-side", title: "Two processes of it work side by side",
		after: delivered, check: checkSideBySide},

	{id: "flush.answered", title: "Flush leaves no spans, with and without batches before it",
		needs: lifecycle, after: delivered, check: checkFlush},
	{id: "flush.overlapping", title: "Export works during Flush and after it",
		needs: lifecycle, after: received, check: checkFlushOverlaps},
	{id: "shutdown.answered", title: "Shutdown leaves no spans",
		needs: lifecycle, after: delivered, check: checkShutdown},
	{id: "shutdown.unconfigured", title: "Without Configure it answers Shutdown, and ends with status 0",
		needs: lifecycle, after: described, check: checkShutdownUnconfigured},
	{id: "shutdown.twice", title: "A second Shutdown does not hang, and breaks nothing",
		needs: lifecycle, after: shutDown, check: checkShutdownTwice},
	{id: "shutdown.export", title: "Export after Shutdown gets a code that is retried, by another process",
		needs: lifecycle, after: shutDown, check: checkExportAfterShutdown},
	{id: "end.released", title: "After Shutdown, GRPCController and the end of standard input it ends within 2 s, with status 0",
		after: shutDown, check: func(t *trial) { t.ready(asHost).endsReleased() }},
	{id: "end.files", title: "It leaves nothing in PLUGIN_UNIX_SOCKET_DIR",
		after: released, check: checkNoFiles},
	{id: "end.stdin", title: "The end of standard input alone ends it within 2 s",
		needs: lifecycle, after: delivered, check: checkStdinEnd},
	{id: "end.host-death", title: "If its host dies in the middle of calls, it ends within 2 s",
		needs: lifecycle, after: delivered, check: checkHostDeath},
	{id: "end.sigterm", title: "SIGTERM ends it within 2 s, with status 0",
		needs: lifecycle, after: delivered, check: checkSIGTERM},
	{id: "end.drain", title: "After SIGTERM it answers the calls in flight, and ends with status 0",
		input: Slow, needs: provoked | lifecycle, after: []string{"end.sigterm"}, check: checkDrain},
	{id: "end.sigint", title: "SIGINT is ignored: a terminal sends it to the host too",
		needs: process, after: delivered, check: checkSIGINT},
	{id: "output.handshake-once", title: "Standard output carries a single handshake",
		needs: process, after: released, check: checkOneHandshake},
	{id: "output.bounded", title: "Fifty batches make at most a hundred lines on descriptors 1 and 2",
		needs: process, after: delivered, check: checkFewLines},
	{id: "host.launched", title: "servetrace's host starts it by go-plugin's client, sends batches, and ends it with status 0",
		needs: process, after: released, check: checkLaunched},

	{id: "configure.diagnostics", title: "Each diagnostic has severity WARNING or ERROR, and a text",
		needs: lifecycle, after: described, last: true, check: checkDiagnostics},
	{id: "export.answers", title: "Every OK answer is an ExportTraceServiceResponse; of a processor a ProcessResponse",
		after: delivered, last: true, check: checkFaults(func(f answerFaults) string { return f.response })},
	{id: "export.partial", title: "A partial success rejects no more spans than the batch has",
		input: Partial, needs: exporter, after: delivered, last: true, check: checkPartial},
	{id: "export.filtered", title: "Trailers count filtered spans as PROCESSOR=COUNT, no more than the batch has",
		input: Filtered, after: delivered, last: true, check: checkFiltered},
	{id: "process.result", title: "A patch applies to the batch; a result is OTLP, and has no spans that the batch had not",
		needs: processor, after: delivered, last: true, check: checkFaults(func(f answerFaults) string { return f.result })},
	{id: "process.accounted", title: "Trailers count all spans that are missing in the result",
		needs: processor, after: delivered, last: true, check: checkFaults(func(f answerFaults) string { return f.accounted })},
}

// rules returns a copy of the table. In the copy, the field after also has the rules that
// a rule builds upon indirectly.
func rules() []rule {
	all := slices.Clone(table)
	before := map[string][]string{}
	for i := range all {
		var after []string
		for _, id := range all[i].after {
			after = append(append(after, before[id]...), id)
		}
		all[i].after = after
		before[all[i].id] = after
	}
	return all
}

// selectRules returns the rules that match at least one pattern, and the rules that they
// build upon. Without patterns it returns all rules. A pattern that matches no rule is an
// error.
func selectRules(all []rule, patterns []string) ([]rule, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, pattern := range patterns {
		matches := 0
		for _, r := range all {
			ok, err := path.Match(pattern, r.id)
			if err != nil {
				return nil, fmt.Errorf("rules %q: %w", pattern, err)
			}
			if !ok {
				continue
			}
			matches++
			for _, id := range append([]string{r.id}, r.after...) {
				wanted[id] = true
			}
		}
		if matches == 0 {
			return nil, fmt.Errorf("rules %q: there is none of that name; see docs/reference/conformance.md", pattern)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(r rule) bool { return !wanted[r.id] }), nil
}
