package host

import (
	"fmt"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/spool"
	"github.com/servetrace/servetrace/host/internal/supervise"
	"github.com/servetrace/servetrace/internal/total"
)

// Stats is the delivery accounting of a Host at one moment. It balances exactly:
//
//	Ended = sum of Refused + Accepted, and for each exporter
//	its Accepted + Recovered = Delivered + sum of Rejected + sum of Filtered + sum of Dropped + Spooled + Waiting
//
// and for each processor
//
//	its Accepted = Passed + sum of Bypassed + sum of Filtered + sum of Dropped + Waiting
//
// These are counts of spans that only grow, except for Waiting, which counts the spans
// in the queues.
type Stats struct {
	// Instance identifies the Host. The id of a batch, pluginsdk.Batch.ID, is Instance, a
	// dash and a number.
	Instance string
	// Ended is the number of sampled spans that were passed to OnEnd, plus the spans in
	// requests for which Consume or Deliver returned no error.
	Ended uint64
	// Refused counts the spans that were not accepted, by reason: "queue_full",
	// "too_large", "shutdown". It is never nil.
	Refused map[string]uint64
	// Accepted is the number of spans that were accepted.
	Accepted uint64
	// PushedBack counts the spans of requests that Consume and Deliver answered with
	// ErrFull, once for each attempt. Their sender still has them, so they are in none
	// of the other counts.
	PushedBack uint64
	// Bytes is the part of LimitBytes in use, and LimitBytes is Config.QueueBytes.
	Bytes, LimitBytes int64
	// Spool is the state of the spool. It is zero without Config.SpoolDir.
	Spool SpoolStats
	// Exporters are in the order of the list. Plugins that a Reload has removed from the
	// list follow; if several removed plugins have the same name, only the last.
	Exporters []ExporterStats
	// Processors are in the order of their lists, first the processors that all exporters
	// share. Plugins that a Reload has removed follow.
	Processors []ProcessorStats
}

// SpoolStats is the state of a Host's files in Config.SpoolDir.
type SpoolStats struct {
	// Bytes is the size of the files, and LimitBytes is Config.SpoolBytes. A file is removed
	// when all of its batches are settled. Bytes exceeds LimitBytes if the Host sends the
	// batches of a file that is larger than a lowered bound.
	Bytes, LimitBytes int64
	// Missed counts the batches and requests that could not be written. They were in
	// memory only.
	Missed uint64
	// Failing is true if the last write failed. LastError is the last failure, empty if
	// there was none.
	Failing   bool
	LastError string
}

func spoolStats(s spool.Stats) SpoolStats {
	stats := SpoolStats{Bytes: s.Bytes, LimitBytes: s.LimitBytes, Missed: s.Missed, Failing: s.Failing}
	if s.Cause != nil {
		stats.LastError = s.Cause.Error()
	}
	return stats
}

// ExporterStats is the accounting of one exporter and the state of its plugin.
type ExporterStats struct {
	// Name is the name of the entry. Path is the executable that was started last, or the
	// socket that was attached last. It is empty before the first start.
	Name, Path string
	// Function is the exporter function in Python that the plugin runs, "MODULE:FUNCTION";
	// Path is its interpreter. Empty for any other plugin.
	Function string
	// Attached is true if the host attaches to the plugin instead of starting it.
	Attached bool
	// Digest is the pinned SHA-256 of the executable, in 64 lower-case hexadecimal digits.
	// Empty if it is not pinned.
	Digest string
	// State is the state of the plugin, and Since the time of its last change. Cause is the
	// reason for the change. It is empty if State needs no explanation.
	State State
	Since time.Time
	Cause string
	// Version and SDK are the plugin's description of itself.
	Version, SDK string
	// PID is the id of the running process that this host has started, else 0.
	PID int
	// Starts counts the processes that became ready. For an attached plugin it counts the
	// connections.
	Starts uint64
	// Crashes counts processes that ended unasked, were killed because they did not answer,
	// or made no handshake. For an attached plugin it counts lost connections. LastCrash is
	// the time of the last crash; zero: never.
	Crashes   uint64
	LastCrash time.Time
	// Changed is true if the executable on disk differs from the running executable. Reload
	// starts the new executable. The host compares them every 10 s.
	Changed bool
	// Granted are the names of the environment variables that the plugin got because it
	// declares them, or because [EnvPluginEnv] names them.
	Granted []string
	// LastError is the last failure of the plugin or of a call to it, and LastErrorTime its
	// time. LastError is empty if there was no failure.
	LastError     string
	LastErrorTime time.Time
	// Failures are the last reasons for which calls failed or spans were rejected, at most
	// eight, the newest first. They include reasons of failures that are over.
	Failures []Failure
	// HeldUntil is the time until which the host sends no batches to this plugin, because
	// it asked for a pause. Zero if no pause is in effect.
	HeldUntil time.Time
	// LastSuccess is the time of the last delivery; zero: never.
	LastSuccess time.Time

	// Accepted is the number of spans that came to the exporter while it is in the list. If
	// there are processors, these are the spans that the processors have passed on.
	// Recovered is the number of spans that an earlier process has left in the spool for
	// this exporter. Together they are the sum of the counts below.
	Accepted, Recovered uint64
	// Delivered is the number of spans that the back end accepted, as the plugin reports it.
	Delivered uint64
	// Rejected counts the spans that were refused for good, by the gRPC code of the
	// answer. Spans that an OK answer rejected count as "PARTIAL_SUCCESS". It is never
	// nil.
	Rejected map[string]uint64
	// Filtered counts the spans that a processor in the plugin dropped on purpose, by
	// processor. Processors beyond the first 64, and names longer than 64 bytes, count
	// as "other". It is never nil.
	Filtered map[string]uint64
	// Dropped counts the spans that this host dropped, by reason: "queue_full", "max_age",
	// "too_large", "quarantined", "shutdown", "spool", "internal". It is never nil.
	Dropped map[string]uint64
	// Spooled is the number of spans that Shutdown has left in the spool for the next
	// process.
	Spooled uint64
	// Waiting is the number of spans that are still in this process.
	Waiting uint64

	// InFlight is the part of Waiting that was sent to the plugin and is not answered yet.
	// InFlightBatches is the number of these calls.
	InFlight        uint64
	InFlightBatches int
	// Quarantined counts the batches that were dropped because the plugin crashed twice
	// while it had only this batch. Dropped["quarantined"] counts their spans.
	Quarantined uint64
	// Unkept counts files that could not be written to Config.CrashDir: reports of crashes,
	// and quarantined batches.
	Unkept uint64
	// Answers counts the export calls that ended, by gRPC code ("OK"), or "LOST" for
	// calls that ended with the plugin or this host, without an answer. It is never
	// nil.
	Answers map[string]uint64
	// Calls are the durations of the calls that Answers counts.
	Calls Durations
	// HeldBytes is the part of Config.QueueBytes that the exporter's batches hold. A batch
	// that waits for several exporters counts in full for each.
	HeldBytes int64
	// OutputSuppressed counts printed lines of the plugin's processes that were not logged,
	// because there were too many. It only grows.
	OutputSuppressed uint64
	// OutputDropped counts printed lines of the plugin's processes that did not reach the
	// standard output of this process, because the reader of that output had gone, or was
	// too slow when the process ended. It only grows.
	OutputDropped uint64
}

// Durations is a histogram of durations.
type Durations struct {
	// Count is the number of durations, Sum their sum.
	Count uint64
	Sum   time.Duration
	// Buckets has, for each upper bound, the number of durations that are not longer. It is
	// never nil, and always has the same keys. A duration may be longer than the longest
	// bound.
	Buckets map[time.Duration]uint64
}

// Failure is one reason for which calls failed or spans were rejected, in the words of
// the back end or of a proxy before it.
type Failure struct {
	// Code is the name of the gRPC code, or "PARTIAL_SUCCESS", or "UNREADABLE" for an answer
	// that cannot be read.
	Code string
	// Reason is the text of the back end's last answer of this kind, at most a kilobyte of
	// it. Answers that differ only in ids, numbers and times count as the same reason. The
	// credentials of the configuration are redacted, and all other text is as the back end
	// sent it.
	Reason string
	// Calls is the number of such answers, and Spans the number of spans that they lost.
	Calls, Spans uint64
	// First is the time of the first answer, Last the time of the last.
	First, Last time.Time
}

// Plugins returns the states of all plugins, the processors before the exporters.
func (s Stats) Plugins() []ExporterStats {
	var list []ExporterStats
	for _, p := range s.Processors {
		list = append(list, p.Plugin)
	}
	return append(list, s.Exporters...)
}

// LogArgs returns the accounting as arguments of slog for the last log line of a
// program, and the number of spans that were lost: refused, rejected or dropped.
func (s Stats) LogArgs() (args []any, lost uint64) {
	args = []any{"spans", s.Ended}
	count := func(name string, spans map[string]uint64, isLoss bool) {
		if len(spans) > 0 {
			args = append(args, name, spans)
		}
		if isLoss {
			lost += total.Of(spans)
		}
	}
	count("refused", s.Refused, true)
	for _, p := range s.Processors {
		args = append(args, p.Plugin.Name+".passed", p.Passed)
		count(p.Plugin.Name+".bypassed", p.Bypassed, false)
		count(p.Plugin.Name+".filtered", p.Plugin.Filtered, false)
		count(p.Plugin.Name+".dropped", p.Plugin.Dropped, true)
	}
	for _, x := range s.Exporters {
		args = append(args, x.Name+".delivered", x.Delivered)
		count(x.Name+".filtered", x.Filtered, false)
		count(x.Name+".rejected", x.Rejected, true)
		count(x.Name+".dropped", x.Dropped, true)
		if x.Spooled > 0 {
			args = append(args, x.Name+".spooled", x.Spooled)
		}
	}
	return args, lost
}

// Check returns an error if the accounting does not balance, which can only be a fault
// of this package.
func (s Stats) Check() error {
	if sum := total.Of(s.Refused) + s.Accepted; sum != s.Ended {
		return fmt.Errorf("%d spans ended, but %d were refused or accepted", s.Ended, sum)
	}
	for _, x := range s.Exporters {
		sum := x.Delivered + total.Of(x.Rejected) + total.Of(x.Filtered) + total.Of(x.Dropped) + x.Spooled + x.Waiting
		if sum != x.Accepted+x.Recovered {
			return fmt.Errorf("plugin %q: %d spans accepted and %d recovered, but %d accounted for", x.Name, x.Accepted, x.Recovered, sum)
		}
	}
	for _, p := range s.Processors {
		x := p.Plugin
		sum := p.Passed + total.Of(p.Bypassed) + total.Of(x.Filtered) + total.Of(x.Dropped) + x.Waiting
		if sum != x.Accepted {
			return fmt.Errorf("processor %q: %d spans accepted, but %d accounted for", x.Name, x.Accepted, sum)
		}
	}
	return nil
}

// ProcessorStats is the accounting of one processor and the state of its plugin.
type ProcessorStats struct {
	// Plugin has the state of the plugin, its calls, and Accepted, Filtered, Dropped and
	// Waiting. Filtered has the names that the plugin gives; spans that are missing in a
	// result without a name count by the name of the plugin. Dropped has a further reason,
	// "rejected", for a batch that the processor refused for good, or answered with a result
	// that cannot be used. Delivered, Rejected, Recovered and Spooled are zero.
	Plugin ExporterStats
	// Exporter is the name of the processor's exporter. Empty: the processor is for all
	// exporters.
	Exporter string
	// FailOpen is the processor's value in Config.ProcessorFailOpen.
	FailOpen bool
	// Passed is the number of spans in the results, which went on to the next processors
	// or to the exporters.
	Passed uint64
	// Bypassed counts the spans that went on unprocessed, because the processor fails open.
	// It counts them by reason: the reasons of Dropped, and "timeout" for spans that were
	// not processed within Config.ExportTimeout. It is never nil.
	Bypassed map[string]uint64
}

func processorStats(x *supervise.Plugin, q pipeline.QueueStats, open bool) ProcessorStats {
	s := ProcessorStats{Plugin: exporterStats(x.Status(), q), Exporter: x.Entry.Exporter, FailOpen: open, Passed: q.Delivered, Bypassed: q.Bypassed}
	s.Plugin.Delivered = 0
	return s
}

// exporterStats joins the state of a plugin and the counts of its queue.
func exporterStats(x supervise.Status, q pipeline.QueueStats) ExporterStats {
	s := ExporterStats{
		Name: x.Name, Path: x.Path, Function: x.Function, Attached: x.Attached, Digest: x.Digest,
		State: x.State, Since: x.Since, Cause: x.Cause,
		Version: x.Version, SDK: x.SDK, PID: x.PID, Starts: x.Starts, Crashes: x.Crashes, LastCrash: x.LastCrash,
		Changed: x.Changed, Granted: x.Granted, LastError: x.LastError, LastErrorTime: x.LastErrorTime,
		LastSuccess: x.LastSuccess, Unkept: x.Unkept, OutputSuppressed: x.OutputSuppressed, OutputDropped: x.OutputDropped,

		Accepted: q.Accepted, Recovered: q.Recovered, Spooled: q.Spooled, Delivered: q.Delivered, Rejected: q.Rejected, Filtered: q.Filtered, Dropped: q.Dropped,
		Waiting: q.Waiting, InFlight: q.InFlight, InFlightBatches: q.InFlightBatches, Quarantined: q.Quarantined,
		HeldBytes: q.HeldBytes, HeldUntil: q.HeldUntil, Answers: q.Answers, Calls: Durations(q.Calls),
	}
	for _, f := range x.Failures {
		s.Failures = append(s.Failures, Failure(f))
	}
	return s
}
