package supervise

import (
	"log/slog"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/host/internal/pipeline"
)

// pluginStatus has the state of a plugin and the counts of its processes. Only setLocked
// changes the state. Safe for concurrent use. mu is taken before the pipeline's mutex.
type pluginStatus struct {
	failures *failures.Log
	queue    *pipeline.Queue
	attached bool

	mu     sync.Mutex
	state  State
	since  time.Time
	cause  string
	facts  facts
	counts counts
	// silent is set if the plugin did not answer its last health check. changed is set if
	// the file of its executable differs from the running executable.
	silent, changed bool
	failed          time.Time // time of the last failed call or health check
	breaker         breaker
	logged          logMemory
}

// facts describe the process that runs, or else the process that ran last.
type facts struct {
	path, version, sdk string
	pid                int
	granted            []string
}

// counts count the processes of a plugin.
type counts struct {
	starts, crashes        uint64
	lastCrash, lastSuccess time.Time
}

// Status is the state of a plugin and its counts. Package host documents the fields.
type Status struct {
	Name, Path, Function, Digest    string
	Attached                        bool
	State                           State
	Since                           time.Time
	Cause, Version, SDK             string
	PID                             int
	Starts, Crashes                 uint64
	LastCrash, LastSuccess          time.Time
	Changed                         bool
	Granted                         []string
	LastError                       string
	LastErrorTime                   time.Time
	Failures                        []failures.Failure
	Unkept                          uint64
	OutputSuppressed, OutputDropped uint64
}

// lock locks the mutex. The result unlocks it and writes the lines for the log.
func lock(s *pluginStatus) (unlock func()) {
	s.mu.Lock()
	return func() {
		s.mu.Unlock()
		s.failures.Write()
	}
}

// set changes the state. cause is the reason for the change. It is empty if the state
// needs no explanation.
func (s *pluginStatus) set(to State, cause string) {
	defer lock(s)()
	s.setLocked(to, cause)
}

// setLocked changes the state, if mayBecome allows it. If the plugin is draining or has
// stopped, the cause of another state is only recorded. args are added to the log line.
func (s *pluginStatus) setLocked(to State, cause string, args ...any) {
	from := s.state
	ending := from == StateDraining || from == StateStopped
	switch {
	case from.mayBecome(to):
		s.state, s.cause, s.since = to, cause, time.Now()
		s.failures.SetState(to.String())
	case !ending: // cannot happen, unless this package has a fault
		s.failures.Note(slog.LevelError, "plugin cannot change its state so; please report this", "from", from.String(), "to", to.String())
		return
	case to.running() || to == StateStarting:
		return
	}
	if !to.running() { // no executable is running
		s.facts.pid, s.changed = 0, false
	}
	if cause != "" {
		s.failures.SetLast(time.Now(), cause)
	}
	if to == StateDraining {
		s.queue.Hasten()
	}
	s.logLocked(to, cause, args)
}

// logLocked notes a change for the log. A plugin may fail at each start by the same cause,
// or by causes that differ only in a number. Such causes are logged once, and at most
// mostCauses different causes are logged.
func (s *pluginStatus) logLocked(to State, cause string, args []any) {
	info := stateInfo[to]
	level, text := info.level, info.text
	if other, ok := attachedText[to]; ok && s.attached {
		text = other
	}
	if cause != "" {
		waiting, _ := s.queue.Load()
		args = append([]any{"waiting_spans", waiting}, args...)
		if to != StateDegraded { // for StateDegraded, the line of the failed call has the cause
			args = append([]any{"cause", cause}, args...)
		}
	}
	if to == StateBackingOff && s.logged.crash {
		level = slog.LevelWarn // the crash was logged as an error
	}
	s.logged.crash = false
	switch {
	case cause != "" && !to.running():
		if s.logged.knows(to, cause) {
			level = slog.LevelDebug
			break
		}
		s.logged.cause = causeText(to, cause)
		s.logged.causes[to]++
	case to == StateReady && s.logged.unsteady:
		if s.logged.causes[to] >= mostCauses {
			level = slog.LevelDebug
			break
		}
		s.logged.causes[to]++
	}
	s.failures.Note(level, text, args...)
}

// degrade records that a batch was not delivered. A plugin in the state ready becomes
// degraded.
func (s *pluginStatus) degrade(cause string) {
	defer lock(s)()
	s.degradeLocked(cause)
}

func (s *pluginStatus) degradeLocked(cause string) {
	s.failed = time.Now()
	if s.state == StateReady {
		s.setLocked(StateDegraded, cause)
	}
}

// delivered records that a batch was delivered. A degraded plugin becomes ready if no
// call has failed for failures.Calm.
func (s *pluginStatus) delivered() {
	defer lock(s)()
	s.counts.lastSuccess = time.Now()
	if time.Since(s.failed) >= failures.Calm {
		s.restoreLocked()
	}
}

func (s *pluginStatus) restoreLocked() {
	s.silent = false
	if s.state == StateDegraded {
		s.setLocked(StateReady, "", "again", true)
	}
}

// answers records that the plugin has answered a call, so that it is no longer silent.
func (s *pluginStatus) answers() {
	defer lock(s)()
	if s.silent {
		s.restoreLocked()
	}
}

func (s *pluginStatus) missed(err error) {
	defer lock(s)()
	if !s.silent {
		s.failures.Note(slog.LevelWarn, "plugin gave no answer to a health check; three in a row and it is taken for hung", "error", err)
	}
	s.silent = true
	s.failures.SetLast(time.Now(), err.Error())
	s.degradeLocked(err.Error())
}

// ready records that a process has been described and configured. The state becomes
// ready.
func (s *pluginStatus) ready(process facts, args ...any) {
	defer lock(s)()
	s.facts = process
	s.counts.starts++
	s.changed, s.silent = false, false
	if !s.logged.unsteady {
		s.logged = logMemory{}
	}
	s.setLocked(StateReady, "", append(args, "start", s.counts.starts)...)
}

// steady records that a process has been ready for policy.steadyAfter. From then on,
// the failures of earlier processes do not count.
func (s *pluginStatus) steady() {
	defer lock(s)()
	s.breaker.steady()
	s.calmLocked()
	if s.logged.unsteady {
		s.logged = logMemory{}
		s.failures.Note(slog.LevelInfo, "plugin is steady again", "state", s.state.String(), "crashes", s.counts.crashes)
	}
}

// calmLocked ends the degraded state, and the trouble in the failures log. It does so if
// the plugin delivered after its last failure and has no batch to send again. Without
// calmLocked, both would last until the next batch, which calls delivered.
func (s *pluginStatus) calmLocked() {
	success := s.counts.lastSuccess
	if _, retries := s.queue.Load(); retries > 0 || success.IsZero() || s.silent {
		return
	}
	if success.After(s.failed) && time.Since(s.failed) >= failures.Calm {
		s.restoreLocked()
	}
	if s.failures.QuietSince(success) {
		s.failures.Delivered(time.Now())
	}
}

// crashed counts a crash, and reports whether the plugin crashes too often. The breaker
// counts only crashes that are the fault of the plugin's code (blamed).
func (s *pluginStatus) crashed(blamed bool) (tooOften bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.crashes++
	s.counts.lastCrash = time.Now()
	if blamed {
		return s.breaker.crashed(s.counts.lastCrash)
	}
	return s.breaker.open
}

// forgive removes the previous crash from the circuit breaker, because a batch has
// caused it.
func (s *pluginStatus) forgive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.forgive()
}

// forget closes the breaker and makes the log begin anew, because an operator has asked
// for a start.
func (s *pluginStatus) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker = breaker{}
	s.logged = logMemory{}
}

// setChanged records whether the executable of the process pid differs from its file.
// news is true if it differs and this was not known before.
func (s *pluginStatus) setChanged(pid int, changed bool) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.facts.pid != pid { // the process is being replaced
		return false
	}
	news = changed && !s.changed
	s.changed = changed
	return news
}

// withLogMemory calls f with the record of what was logged, under the mutex.
func (s *pluginStatus) withLogMemory(f func(m *logMemory)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.logged)
}

func (s *pluginStatus) now() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *pluginStatus) stats() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{
		Path: s.facts.path, Version: s.facts.version, SDK: s.facts.sdk, PID: s.facts.pid, Granted: s.facts.granted,
		State: s.state, Since: s.since, Cause: s.cause, Changed: s.changed,
		Starts: s.counts.starts, Crashes: s.counts.crashes, LastCrash: s.counts.lastCrash, LastSuccess: s.counts.lastSuccess,
	}
	out.Failures, out.LastError, out.LastErrorTime = s.failures.Recent()
	return out
}

// inherit takes over the counts of a plugin of the same name that has ended.
func (s *pluginStatus) inherit(before *pluginStatus) {
	before.mu.Lock()
	earlier := before.counts
	before.mu.Unlock()
	s.failures.Inherit(before.failures)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = earlier
}

// logMemory has the logged starts and ends of a plugin since its last steady process, so
// that the log does not repeat them.
type logMemory struct {
	// cause is the text that was logged last as the reason why the plugin does not run.
	// causes has the number of logged reasons by state.
	cause  string
	causes [stateCount]int
	// lastCrash is the text of the last crash, and crashes is the number of crashes.
	// crash is true if the last crash is newer than the last change of state.
	lastCrash string
	crashes   int
	crash     bool
	// unsteady is set if a process became ready and ended before it was steady.
	unsteady bool
}

// mostCauses bounds the number of causes that are logged for each state, and the number
// of crashes that are logged, until a process is steady.
const mostCauses = 8

// knows reports whether a cause must not be logged again: it was logged last, or
// mostCauses causes of the state were logged.
func (m *logMemory) knows(to State, cause string) bool {
	return causeText(to, cause) == m.cause || m.causes[to] >= mostCauses
}

// causeText returns the state and the cause in a form that is the same for causes that
// differ only in long numbers or random names.
func causeText(to State, cause string) string {
	return to.String() + ":" + failures.WithoutNumbers(cause, failures.IsShort)
}

// levelOfCrash returns the log level for a crash, and remembers the crash. A repeated
// crash, and each crash after mostCauses crashes, is logged at debug level.
func (m *logMemory) levelOfCrash(crash string) slog.Level {
	level := slog.LevelError
	if crash == m.lastCrash || m.crashes >= mostCauses {
		level = slog.LevelDebug
	}
	m.lastCrash, m.crash = crash, true
	m.crashes++
	return level
}
