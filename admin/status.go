package admin

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/total"
)

// StatusVersion is the version of the JSON form. New fields keep the version; a removed
// field or a changed meaning increments it.
const StatusVersion = 1

// Status is the JSON form of the page, and the output of `servetrace status --json`.
// Times are RFC 3339 in UTC; zero times and empty texts are omitted. All counts of
// spans only grow, except counts of waiting spans.
type Status struct {
	// Version is [StatusVersion].
	Version int `json:"version"`
	// Time is the time of the snapshot of the statistics. The states of deployments are read
	// immediately after this snapshot.
	Time time.Time `json:"time"`
	// Process describes the service's process.
	Process Process `json:"process"`
	// Spans counts spans before they are passed to plugins: ended = accepted + sum of refused.
	Spans Spans `json:"spans"`
	// Queue is the memory of all spans that wait for a plugin.
	Queue Queue `json:"queue"`
	// Spool is the state of the files of SERVE_TRACING_SPOOL_DIR. Omitted without a
	// spool.
	Spool *Spool `json:"spool,omitempty"`
	// BooksError describes a mismatch in the delivery accounting, which is a bug of the
	// host. Omitted if there is none.
	BooksError string `json:"books_error,omitempty"`
	// Plugins are in the order of the lists, processors first. Empty, never null, if
	// tracing is off or the plugin folders are empty.
	Plugins []Plugin `json:"plugins"`
	// Sampling is the sampler of the process. Omitted if the process does not sample, as
	// a relay, or tracing is off.
	Sampling *Sampling `json:"sampling,omitempty"`
	// Deployments are the deployments of package serving that this process runs or calls.
	// Omitted if there are none.
	Deployments []Deployment `json:"deployments,omitempty"`
	// Relay is the relay of this process. Omitted if there is none.
	Relay *Relay `json:"relay,omitempty"`
}

// Sampling describes the decision for the first span of a trace.
type Sampling struct {
	// Sampler is the name of the sampler, in the words of OTEL_TRACES_SAMPLER.
	Sampler string `json:"sampler"`
	// Ratio is the share of the traces that begin in this process that is sampled, from 0 to 1.
	Ratio float64 `json:"ratio"`
	// TrustInbound reports that the sampled flag of an inbound trace context decides.
	TrustInbound bool `json:"trust_inbound"`
}

// Deployment is a deployment of an app; see serving.DeploymentStatus.
type Deployment struct {
	App  string `json:"app"`
	Name string `json:"name"`
	// State is UPDATING, HEALTHY, UNHEALTHY, DEPLOY_FAILED or STOPPING. Error is the
	// last error since the deployment was HEALTHY, or the reason for which the processes at
	// Target cannot be found or reached.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// NumReplicas, MaxOngoingRequests (per replica) and MaxQueuedRequests (-1: no
	// limit) are the current settings.
	NumReplicas        int `json:"num_replicas"`
	MaxOngoingRequests int `json:"max_ongoing_requests"`
	MaxQueuedRequests  int `json:"max_queued_requests"`
	// Queued is the number of requests that wait for a replica.
	Queued int `json:"queued"`
	// Target is the target in SERVE_REMOTE, if other processes run the deployment. Replicas then
	// has these processes, with their addresses as ids. Omitted if this process runs it.
	Target string `json:"target,omitempty"`
	// Replicas are the replicas that have not ended, oldest first. Never null.
	Replicas []Replica `json:"replicas"`
}

// Ongoing returns the number of requests in all replicas.
func (d Deployment) Ongoing() (n int) {
	for _, r := range d.Replicas {
		n += r.Ongoing
	}
	return n
}

// Replica is a replica of a deployment.
type Replica struct {
	// ID is the replica's unique id.
	ID string `json:"id"`
	// State is STARTING, RUNNING, UNHEALTHY or STOPPING, since the time Since.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Ongoing is the number of requests in the replica.
	Ongoing int `json:"ongoing"`
	// Models are the ids of the models that the replica holds or loads.
	Models []string `json:"models,omitempty"`
}

// Process describes the serving process.
type Process struct {
	// Program is the name of the executable.
	Program string `json:"program"`
	// PID is the process id.
	PID int `json:"pid"`
	// Started is the start time.
	Started time.Time `json:"started"`
	// Version is the version of the servetrace module. Revision is the commit of the
	// program, if known.
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// Go is the Go version of the build.
	Go string `json:"go"`
	// LogLinesDropped counts log lines that were dropped because they came faster than
	// they were read. Omitted if 0.
	LogLinesDropped uint64 `json:"log_lines_dropped,omitempty"`
}

// Spans counts spans before the plugins.
type Spans struct {
	Ended    uint64 `json:"ended"`
	Accepted uint64 `json:"accepted"`
	// Refused counts spans by reason. Never null.
	Refused map[string]uint64 `json:"refused"`
	// PushedBack counts spans of requests that the host refused with host.ErrFull. Their
	// senders still have these spans, so no other count includes them. Omitted if 0.
	PushedBack uint64 `json:"pushed_back,omitempty"`
}

// Queue is the memory of waiting spans and its limit, in bytes.
type Queue struct {
	Bytes      int64 `json:"bytes"`
	LimitBytes int64 `json:"limit_bytes"`
}

// Spool is the state of the files of batches that are not delivered yet.
type Spool struct {
	Bytes      int64 `json:"bytes"`
	LimitBytes int64 `json:"limit_bytes"`
	// Missed counts batches and requests that could not be written to the files. They were in
	// memory only.
	Missed uint64 `json:"missed"`
	// Failing reports that the last write failed. LastError is the last failure.
	Failing   bool   `json:"failing"`
	LastError string `json:"last_error,omitempty"`
}

// Plugin is an entry of the plugin list.
type Plugin struct {
	// Name is the name in the list.
	Name string `json:"name"`
	// Kind is exporter or processor.
	Kind string `json:"kind"`
	// Exporter is the exporter that a processor is for. Omitted for a processor of all
	// exporters.
	Exporter string `json:"exporter,omitempty"`
	// Fail is open or closed for a processor. Omitted for an exporter.
	Fail string `json:"fail,omitempty"`
	// State is starting, ready, degraded, backing-off, broken, incompatible, untrusted,
	// draining or stopped, since the time Since. Cause explains the state if necessary.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	Cause string    `json:"cause,omitempty"`
	// Attached reports that the service attaches to this plugin and does not start it.
	Attached bool `json:"attached"`
	// Path is the last started executable, or the last attached socket.
	Path string `json:"path,omitempty"`
	// Function is the exporter function in Python that the plugin runs. Path is then the
	// interpreter.
	Function string `json:"function,omitempty"`
	// Digest is the SHA-256 to which the list pins the executable. Omitted without a pin.
	Digest string `json:"digest,omitempty"`
	// PID is the id of the running process. 0 if there is no process or the plugin is
	// attached.
	PID int `json:"pid"`
	// PluginVersion is the version of the plugin, and SDK the library with which it was built,
	// as the plugin reports them.
	PluginVersion string `json:"plugin_version,omitempty"`
	SDK           string `json:"sdk,omitempty"`
	// Starts counts processes that became ready, or connections to an attached plugin.
	// Crashes counts processes that ended unasked, or were killed because they did not
	// answer.
	Starts    uint64    `json:"starts"`
	Crashes   uint64    `json:"crashes"`
	LastCrash time.Time `json:"last_crash,omitzero"`
	// Changed reports that the executable on disk is not the running executable. SIGHUP
	// starts the executable on disk.
	Changed bool `json:"changed"`
	// Granted are the names of the environment variables that the plugin got because it
	// declares them, or because SERVE_TRACING_PLUGIN_ENV names them.
	Granted []string `json:"granted"`
	// LastError is the last failure of the plugin or of a call, LastErrorTime its time.
	LastError     string    `json:"last_error,omitempty"`
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
	// Failures are the last reasons of failed calls or rejected spans, at most eight,
	// the newest first. Never null.
	Failures []Failure `json:"failures"`
	// HeldUntil is the time until which the host sends no batches to this plugin,
	// because it asked for a pause. Omitted if no pause is in effect.
	HeldUntil time.Time `json:"held_until,omitzero"`
	// LastSuccess is the time of the last delivered batch.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// Spans is the plugin's delivery accounting.
	Spans PluginSpans `json:"spans"`
	// Calls counts the export calls.
	Calls Calls `json:"calls"`
	// QuarantinedBatches counts batches that were dropped because the plugin crashed
	// twice while it had only this batch.
	QuarantinedBatches uint64 `json:"quarantined_batches"`
	// UnkeptFiles counts crash reports and quarantined batches that could not be
	// written to SERVE_TRACING_CRASH_DIR.
	UnkeptFiles uint64 `json:"unkept_files"`
	// OutputSuppressedLines counts lines of the plugin's output that were not logged,
	// because they exceeded the rate limit.
	OutputSuppressedLines uint64 `json:"output_suppressed_lines"`
	// OutputDroppedLines counts lines of the plugin's output that did not reach the
	// service's standard output.
	OutputDroppedLines uint64 `json:"output_dropped_lines"`
	// HeldBytes is the memory of the batches that wait for this plugin, in bytes. If a batch
	// waits for several plugins, it counts completely for each of them.
	HeldBytes int64 `json:"held_bytes"`
}

// Failure is a reason of failed calls or rejected spans.
type Failure struct {
	// Code is the gRPC code, "PARTIAL_SUCCESS" or "UNREADABLE".
	Code string `json:"code"`
	// Reason is the last message of the back end or of a proxy. Messages that differ
	// only in numbers and ids are counted together.
	Reason string `json:"reason"`
	// Calls counts the failed calls, Spans the lost spans.
	Calls uint64 `json:"calls"`
	Spans uint64 `json:"spans"`
	// First and Last are the times of the first and the last occurrence.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Calls counts export calls, each with one batch.
type Calls struct {
	// InFlight counts calls that the plugin has not answered.
	InFlight int `json:"in_flight"`
	// Ended counts ended calls by gRPC code ("OK"), or "LOST" if the plugin ended
	// before its answer. Never null.
	Ended map[string]uint64 `json:"ended"`
	// Seconds is the total duration of the ended calls.
	Seconds float64 `json:"seconds"`
}

// PluginSpans is the delivery accounting of a plugin: accepted + recovered = delivered +
// sum of rejected + sum of filtered + sum of dropped + spooled + waiting. For a processor,
// accepted = passed + sum of bypassed + sum of filtered + sum of dropped + waiting. No map
// is null.
type PluginSpans struct {
	Accepted uint64 `json:"accepted"`
	// Recovered counts spans that an earlier process left in the spool, and Spooled
	// spans that this process left there when it stopped. Omitted if 0.
	Recovered uint64 `json:"recovered,omitempty"`
	Spooled   uint64 `json:"spooled,omitempty"`
	Delivered uint64 `json:"delivered"`
	// Passed counts spans that a processor passed on. Bypassed counts spans that went on
	// without the processor, by reason. Both are omitted for an exporter.
	Passed   *uint64           `json:"passed,omitempty"`
	Bypassed map[string]uint64 `json:"bypassed,omitempty"`
	// Rejected counts spans that the plugin rejected finally, by gRPC code or
	// "PARTIAL_SUCCESS".
	Rejected map[string]uint64 `json:"rejected"`
	// Filtered counts spans that a processor of the plugin dropped, by processor.
	Filtered map[string]uint64 `json:"filtered"`
	// Dropped counts spans that the host dropped, by reason.
	Dropped map[string]uint64 `json:"dropped"`
	// Waiting counts spans that wait for the plugin, in flight or not. InFlight counts
	// the waiting spans that were sent and are not answered yet.
	Waiting  uint64 `json:"waiting"`
	InFlight uint64 `json:"in_flight"`
}

// Done returns the number of spans that an exporter delivered or a processor passed on.
func (s PluginSpans) Done() uint64 {
	if s.Passed != nil {
		return *s.Passed
	}
	return s.Delivered
}

// Lost returns the number of rejected and dropped spans.
func (s PluginSpans) Lost() uint64 { return total.Of(s.Rejected) + total.Of(s.Dropped) }

// started is the time at which this package was loaded, soon after the process started.
var started = time.Now()

func newStatus(s host.Stats, at time.Time) Status {
	status := Status{
		Version: StatusVersion,
		Time:    at.UTC(),
		Process: process(),
		Spans:   Spans{Ended: s.Ended, Accepted: s.Accepted, Refused: notNil(s.Refused), PushedBack: s.PushedBack},
		Queue:   Queue{Bytes: s.Bytes, LimitBytes: s.LimitBytes},
		Plugins: []Plugin{},
	}
	if err := s.Check(); err != nil {
		status.BooksError = err.Error()
	}
	if s.Spool.LimitBytes > 0 {
		status.Spool = (*Spool)(&s.Spool)
	}
	for _, p := range s.Processors {
		status.Plugins = append(status.Plugins, newProcessor(p))
	}
	for _, x := range s.Exporters {
		status.Plugins = append(status.Plugins, newPlugin(x))
	}
	return status
}

func newProcessor(p host.ProcessorStats) Plugin {
	out := newPlugin(p.Plugin)
	out.Kind, out.Exporter, out.Fail = "processor", p.Exporter, "closed"
	if p.FailOpen {
		out.Fail = "open"
	}
	out.Spans.Passed, out.Spans.Bypassed = &p.Passed, p.Bypassed
	return out
}

func newPlugin(x host.ExporterStats) Plugin {
	return Plugin{
		Name:          x.Name,
		Kind:          "exporter",
		State:         x.State.String(),
		Since:         x.Since.UTC(),
		Cause:         x.Cause,
		Attached:      x.Attached,
		Path:          x.Path,
		Function:      x.Function,
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
		Recovered: x.Recovered,
		Spooled:   x.Spooled,
		Delivered: x.Delivered,
		Rejected:  notNil(x.Rejected),
		Filtered:  notNil(x.Filtered),
		Dropped:   notNil(x.Dropped),
		Waiting:   x.Waiting,
		InFlight:  x.InFlight,
	}
}

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

const modulePath = "github.com/servetrace/servetrace"

// build returns the version of servetrace in this program, or "unknown" if the build
// has no module information. It also returns the commit of the program, which may be
// empty.
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

// notNil returns counts, or an empty map for nil, so that the JSON form has no null.
func notNil(counts map[string]uint64) map[string]uint64 {
	if counts == nil {
		return map[string]uint64{}
	}
	return counts
}
