package host

import (
	"fmt"
	"time"
)

// Stats are the books of a Host at one moment. They balance exactly:
//
//	Ended = sum of Refused + Accepted, and for each exporter
//	its Accepted = Delivered + sum of Rejected + sum of Filtered + sum of Dropped + Waiting
//
// All counts are of spans and only grow, but for Waiting, which is counted
// where the spans lie.
type Stats struct {
	// Ended are the sampled spans that OnEnd was called with.
	Ended uint64
	// Refused are those that were not taken in, by reason: "queue_full",
	// "too_large", "shutdown". It is never nil.
	Refused map[string]uint64
	// Accepted are those that were.
	Accepted uint64
	// Bytes is how much of LimitBytes is in use, and LimitBytes is
	// Config.QueueBytes.
	Bytes, LimitBytes int64
	// Exporters are in the order of the list. Behind them are those that a Reload
	// has taken off it, the last of each name.
	Exporters []ExporterStats
}

// ExporterStats are the books of one exporter and the state of its plugin.
type ExporterStats struct {
	// Name is the entry's name; Path the executable last started, or the socket
	// last attached to, empty before it was found.
	Name, Path string
	// Attached: this host does not start the plugin but attaches to it.
	Attached bool
	// Digest is the SHA-256 that the executable is pinned to, in 64 lower-case
	// hexadecimal digits; empty: it is not pinned.
	Digest string
	// State is where the plugin is in its life, Since when it came there, and
	// Cause why; empty where State says it all.
	State State
	Since time.Time
	Cause string
	// Version and SDK are what the plugin says of itself.
	Version, SDK string
	// PID is the running process that this host has started, else 0.
	PID int
	// Starts counts the processes started so far that became ready, or the
	// connections.
	Starts uint64
	// Crashes counts the processes that ended without having been asked to,
	// were killed because they did not answer, or never became a plugin; and
	// the lost connections to one that is attached to. LastCrash is when the
	// last one was; zero: never.
	Crashes   uint64
	LastCrash time.Time
	// Changed: the executable on disk is not the one that runs; Reload replaces
	// it. It is looked at every 10 s.
	Changed bool
	// Granted are the names of the declared variables that the plugin got.
	Granted []string
	// LastError is the last failure of the plugin or a call; empty: none yet.
	// LastErrorTime is when it was.
	LastError     string
	LastErrorTime time.Time
	// Failures are the last reasons for which calls failed or spans were
	// rejected, at most eight, the newest first; also those of trouble that is
	// over.
	Failures []Failure
	// HeldUntil is when the plugin gets batches again that has asked, mostly for
	// its back end, to be left alone; zero: it has not, or that is over.
	HeldUntil time.Time
	// LastSuccess is when a batch was delivered last; zero: never.
	LastSuccess time.Time

	// Accepted are the spans taken in since the exporter is in the list, and
	// until it left it: what the counts below come to.
	Accepted uint64
	// Delivered are the spans that the plugin says its back end took.
	Delivered uint64
	// Rejected are those that it says never will be, by gRPC code, or
	// "PARTIAL_SUCCESS". It is never nil.
	Rejected map[string]uint64
	// Filtered are those that a processor in the plugin dropped on purpose, by
	// processor; those of processors beyond the first 64, and of names longer
	// than 64 bytes, count as "other". It is never nil.
	Filtered map[string]uint64
	// Dropped are those that this host gave up, by reason: "queue_full",
	// "max_age", "too_large", "quarantined", "shutdown", "internal". It is never
	// nil.
	Dropped map[string]uint64
	// Waiting are those that still lie in this process.
	Waiting uint64

	// InFlight are those of Waiting that the plugin has and has not answered
	// for, InFlightBatches the calls that carry them.
	InFlight        uint64
	InFlightBatches int
	// Quarantined counts the batches that were dropped because the plugin
	// crashed twice while it had nothing else: what Dropped["quarantined"] has in
	// spans.
	Quarantined uint64
	// Unkept counts the files, of such batches and of crashes, that were to be
	// written to Config.CrashDir and could not be.
	Unkept uint64
	// Answers counts the export calls that ended, by gRPC code ("OK"), or "LOST"
	// for those that the plugin did not live to answer, or this host to hear. It
	// is never nil.
	Answers map[string]uint64
	// Calls are the same calls, with how long they took.
	Calls Durations
	// HeldBytes is how much of Config.QueueBytes its batches hold, counted in
	// full for each exporter that they wait for.
	HeldBytes int64
	// OutputSuppressed counts the lines that the plugin's processes printed and
	// that were not logged, for they were too many. It only grows.
	OutputSuppressed uint64
	// OutputDropped counts the lines that the plugin's processes printed to the
	// standard output of this process and that did not reach it: whoever reads it
	// was too slow when the process ended, or gone. It only grows.
	OutputDropped uint64
}

// Check tells whether the books balance; the error says where they do not. It
// can only fail by a bug of this package.
func (s Stats) Check() error {
	if sum := total(s.Refused) + s.Accepted; sum != s.Ended {
		return fmt.Errorf("%d spans ended, but %d were refused or accepted", s.Ended, sum)
	}
	for _, x := range s.Exporters {
		sum := x.Delivered + total(x.Rejected) + total(x.Filtered) + total(x.Dropped) + x.Waiting
		if sum != x.Accepted {
			return fmt.Errorf("plugin %q: %d spans accepted, but %d accounted for", x.Name, x.Accepted, sum)
		}
	}
	return nil
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
