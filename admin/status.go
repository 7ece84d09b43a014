package admin

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/servetrace/servetrace/host"
)

// StatusVersion is the version of the JSON form. Fields are added under the same
// version; it grows when one changes its meaning or goes.
const StatusVersion = 1

// Status is the JSON form of the page, and what `servetrace status --json`
// prints. Times are RFC 3339 in UTC; one that never was is left out, and so are
// empty texts. Counts of spans only grow, but for those of spans that wait.
type Status struct {
	// Version is [StatusVersion].
	Version int `json:"version"`
	// Time is when all of it was so: it is one snapshot, but for the deployments,
	// which are looked at right after it.
	Time time.Time `json:"time"`
	// Process is the service.
	Process Process `json:"process"`
	// Spans are the books before the plugins: ended = accepted + sum of refused.
	Spans Spans `json:"spans"`
	// Queue is the memory that spans take while they wait, all plugins together.
	Queue Queue `json:"queue"`
	// BooksError says where the books do not balance; left out where they do. It
	// can only come by a bug of the host.
	BooksError string `json:"books_error,omitempty"`
	// Plugins are in the order of the list; empty, never null, where tracing is
	// off, or its folders have no plugin.
	Plugins []Plugin `json:"plugins"`
	// Deployments are those that the process serves; left out where it serves
	// none by package serving.
	Deployments []Deployment `json:"deployments,omitempty"`
}

// Deployment is one deployment of an app, as serving.DeploymentStatus has it.
type Deployment struct {
	App  string `json:"app"`
	Name string `json:"name"`
	// State is one of UPDATING, HEALTHY, UNHEALTHY, DEPLOY_FAILED and STOPPING;
	// Error is what went wrong since it was HEALTHY last.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// NumReplicas, MaxOngoingRequests (of a replica) and MaxQueuedRequests (-1: no
	// limit) are the settings that hold.
	NumReplicas        int `json:"num_replicas"`
	MaxOngoingRequests int `json:"max_ongoing_requests"`
	MaxQueuedRequests  int `json:"max_queued_requests"`
	// Queued is how many requests wait for a replica.
	Queued int `json:"queued"`
	// Replicas are those that have not ended, oldest first; never null.
	Replicas []Replica `json:"replicas"`
}

// Ongoing is how many requests its replicas have.
func (d Deployment) Ongoing() (n int) {
	for _, r := range d.Replicas {
		n += r.Ongoing
	}
	return n
}

// Replica is one replica.
type Replica struct {
	// ID is its unique id.
	ID string `json:"id"`
	// State is one of STARTING, RUNNING, UNHEALTHY and STOPPING; Since is when it
	// came to it.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Ongoing is how many requests it has.
	Ongoing int `json:"ongoing"`
	// Models are the ids of those that it holds or loads.
	Models []string `json:"models,omitempty"`
}

// Process is the process that serves.
type Process struct {
	// Program is the name of its executable.
	Program string `json:"program"`
	// PID is its process id.
	PID int `json:"pid"`
	// Started is when it was started.
	Started time.Time `json:"started"`
	// Version is that of the servetrace module in it, Revision the commit that
	// the program was built from, if the build knew.
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// Go is the release of Go that it was built with.
	Go string `json:"go"`
	// LogLinesDropped counts the lines that the log of the service has dropped,
	// because they came faster than they were read; left out if it is zero.
	LogLinesDropped uint64 `json:"log_lines_dropped,omitempty"`
}

// Spans are counts of spans before the plugins.
type Spans struct {
	Ended    uint64 `json:"ended"`
	Accepted uint64 `json:"accepted"`
	// Refused are by reason, never null.
	Refused map[string]uint64 `json:"refused"`
}

// Queue is memory in bytes.
type Queue struct {
	Bytes      int64 `json:"bytes"`
	LimitBytes int64 `json:"limit_bytes"`
}

// Plugin is one entry of the list.
type Plugin struct {
	// Name is the entry's.
	Name string `json:"name"`
	// State is one of starting, ready, degraded, backing-off, broken,
	// incompatible, untrusted, draining and stopped; Since is when the plugin
	// came to it, Cause why, where the state does not say it all.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	Cause string    `json:"cause,omitempty"`
	// Attached: this service does not start the plugin but attaches to it.
	Attached bool `json:"attached"`
	// Path is the executable last started, or the socket last attached to.
	Path string `json:"path,omitempty"`
	// Digest is the SHA-256 that the executable is pinned to.
	Digest string `json:"digest,omitempty"`
	// PID is the running process; 0 for none, or one that was attached to.
	PID int `json:"pid"`
	// PluginVersion and SDK are what the plugin says of itself.
	PluginVersion string `json:"plugin_version,omitempty"`
	SDK           string `json:"sdk,omitempty"`
	// Starts counts processes that became ready, or connections; Crashes those
	// that ended without having been asked to, or were killed because they did
	// not answer.
	Starts    uint64    `json:"starts"`
	Crashes   uint64    `json:"crashes"`
	LastCrash time.Time `json:"last_crash,omitzero"`
	// Changed: the executable on disk is not the one that runs; SIGHUP replaces
	// it.
	Changed bool `json:"changed"`
	// Granted are the names of the declared variables that the plugin got.
	Granted []string `json:"granted"`
	// LastError is the last failure of the plugin or of a call, LastErrorTime
	// when it was.
	LastError     string    `json:"last_error,omitempty"`
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
	// Failures are the last reasons for which calls failed or spans were
	// rejected, at most eight, the newest first; never null.
	Failures []Failure `json:"failures"`
	// HeldUntil is when the plugin gets batches again that has asked, mostly for
	// its back end, to be left alone; left out where it has not.
	HeldUntil time.Time `json:"held_until,omitzero"`
	// LastSuccess is when a batch was delivered last.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// Spans are its books.
	Spans PluginSpans `json:"spans"`
	// Calls are the export calls to it.
	Calls Calls `json:"calls"`
	// QuarantinedBatches were dropped because the plugin crashed twice while it
	// had nothing else.
	QuarantinedBatches uint64 `json:"quarantined_batches"`
	// UnkeptFiles, of such batches and of crashes, were to be written to
	// SERVE_TRACING_CRASH_DIR and could not be.
	UnkeptFiles uint64 `json:"unkept_files"`
	// OutputSuppressedLines are those that the plugin's processes printed and
	// that were not logged, for they were too many.
	OutputSuppressedLines uint64 `json:"output_suppressed_lines"`
	// OutputDroppedLines are those that they printed to the standard output of the
	// service and that did not reach it.
	OutputDroppedLines uint64 `json:"output_dropped_lines"`
	// HeldBytes is the memory of the batches that wait for it. A batch counts in
	// full for each plugin that it waits for.
	HeldBytes int64 `json:"held_bytes"`
}

// Failure is one reason for which calls failed, or spans were rejected.
type Failure struct {
	// Code is the gRPC code, or "PARTIAL_SUCCESS", or "UNREADABLE".
	Code string `json:"code"`
	// Reason are the words of the back end, or of what stands between. Those that
	// differ in numbers and ids only are one reason; these came last.
	Reason string `json:"reason"`
	// Calls were answered so, Spans were lost by it.
	Calls uint64 `json:"calls"`
	Spans uint64 `json:"spans"`
	// First and Last are when.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Calls are export calls, each with one batch.
type Calls struct {
	// InFlight are those that the plugin has not answered.
	InFlight int `json:"in_flight"`
	// Ended are those that have ended, by gRPC code ("OK"), or "LOST" where the
	// plugin did not live to answer. Never null.
	Ended map[string]uint64 `json:"ended"`
	// Seconds is how long those took together.
	Seconds float64 `json:"seconds"`
}

// PluginSpans is the ledger of one plugin: accepted = delivered + sum of
// rejected + sum of filtered + sum of dropped + waiting. No map is null.
type PluginSpans struct {
	Accepted  uint64 `json:"accepted"`
	Delivered uint64 `json:"delivered"`
	// Rejected are those that the plugin says never will be delivered, by gRPC
	// code or "PARTIAL_SUCCESS".
	Rejected map[string]uint64 `json:"rejected"`
	// Filtered are those that a processor in the plugin dropped on purpose, by
	// processor.
	Filtered map[string]uint64 `json:"filtered"`
	// Dropped are those that the host gave up, by reason.
	Dropped map[string]uint64 `json:"dropped"`
	// Waiting are those that still lie in the service; InFlight are those of
	// them that the plugin has and has not answered for.
	Waiting  uint64 `json:"waiting"`
	InFlight uint64 `json:"in_flight"`
}

// Lost are the spans that never will be delivered and were not to be dropped.
func (s PluginSpans) Lost() uint64 { return total(s.Rejected) + total(s.Dropped) }

// started is when this process was, give or take its initialisation.
var started = time.Now()

// newStatus puts the books of a moment into their public form.
func newStatus(s host.Stats, at time.Time) Status {
	status := Status{
		Version: StatusVersion,
		Time:    at.UTC(),
		Process: process(),
		Spans:   Spans{Ended: s.Ended, Accepted: s.Accepted, Refused: notNil(s.Refused)},
		Queue:   Queue{Bytes: s.Bytes, LimitBytes: s.LimitBytes},
		Plugins: []Plugin{},
	}
	if err := s.Check(); err != nil {
		status.BooksError = err.Error()
	}
	for _, x := range s.Exporters {
		status.Plugins = append(status.Plugins, newPlugin(x))
	}
	return status
}

func newPlugin(x host.ExporterStats) Plugin {
	return Plugin{
		Name:          x.Name,
		State:         x.State.String(),
		Since:         x.Since.UTC(),
		Cause:         x.Cause,
		Attached:      x.Attached,
		Path:          x.Path,
		Digest:        x.Digest,
		PID:           x.PID,
		PluginVersion: x.Version,
		SDK:           x.SDK,
		Starts:        x.Starts,
		Crashes:       x.Crashes,
		LastCrash:     x.LastCrash.UTC(),
		Changed:       x.Changed,
		Granted:       append([]string{}, x.Granted...),
		LastError:     x.LastError,
		LastErrorTime: x.LastErrorTime.UTC(),
		Failures:      newFailures(x.Failures),
		HeldUntil:     x.HeldUntil.UTC(),
		LastSuccess:   x.LastSuccess.UTC(),
		Spans:         newPluginSpans(x),
		Calls: Calls{
			InFlight: x.InFlightBatches,
			Ended:    notNil(x.Answers),
			Seconds:  x.Calls.Sum.Seconds(),
		},
		QuarantinedBatches:    x.Quarantined,
		UnkeptFiles:           x.Unkept,
		OutputSuppressedLines: x.OutputSuppressed,
		OutputDroppedLines:    x.OutputDropped,
		HeldBytes:             x.HeldBytes,
	}
}

func newFailures(list []host.Failure) []Failure {
	out := []Failure{}
	for _, f := range list {
		out = append(out, Failure{
			Code: f.Code, Reason: f.Reason, Calls: f.Calls, Spans: f.Spans, First: f.First.UTC(), Last: f.Last.UTC(),
		})
	}
	return out
}

func newPluginSpans(x host.ExporterStats) PluginSpans {
	return PluginSpans{
		Accepted:  x.Accepted,
		Delivered: x.Delivered,
		Rejected:  notNil(x.Rejected),
		Filtered:  notNil(x.Filtered),
		Dropped:   notNil(x.Dropped),
		Waiting:   x.Waiting,
		InFlight:  x.InFlight,
	}
}

// process says what can be known of this one.
func process() Process {
	version, revision := build()
	return Process{
		Program:  filepath.Base(os.Args[0]),
		PID:      os.Getpid(),
		Started:  started.UTC(),
		Version:  version,
		Revision: revision,
		Go:       runtime.Version(),
	}
}

// modulePath is the module that build looks for.
const modulePath = "github.com/servetrace/servetrace"

// build gives the version of this module in the program, "unknown" where the
// linker was not told, and the commit of the program, which may be empty.
func build() (version, revision string) {
	version = "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, ""
	}
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path == modulePath && module.Version != "" {
			version = module.Version
		}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = setting.Value
		}
	}
	return version, revision
}

func notNil(counts map[string]uint64) map[string]uint64 {
	if counts == nil {
		return map[string]uint64{}
	}
	return counts
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
