package supervise

import (
	"log/slog"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/host/internal/pipeline"
)

// pluginStatus is the state of one exporter's plugin, with the counts of its starts and
// crashes. Only its methods change the state. Safe for concurrent use. Lock order: mu,
// then the pipeline's mutex.
type pluginStatus struct {
	failures *failures.Log
	queue    *pipeline.Queue
	attached bool

	mu    sync.Mutex
	state State
	since time.Time
	cause string
	about facts
	life  counts
	// silent is true if the plugin did not answer its last health check. changed is
	// true if the executable has changed since the process was started.
	silent, changed bool
	failed          time.Time // a call or a health check failed last
	breaker         breaker
	told            told
}

// facts describe the process that runs, or the last process.
type facts struct {
	path, version, sdk string
	pid                int
	granted            []string
}

// counts are totals over all processes of a plugin.
type counts struct {
	starts, crashes        uint64
	lastCrash, lastSuccess time.Time
}

// set changes the state. cause is the reason, empty if the state needs none.
func (s *pluginStatus) set(to State, cause string) {
	defer s.failures.Write()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(to, cause)
}

// setLocked is the only function that changes the state. While the host shuts down,
// only draining and stopped are allowed, but a cause is still stored. args are added to
// the log line.
func (s *pluginStatus) setLocked(to State, cause string, args ...any) {
	from := s.state
	ending := from == StateDraining || from == StateStopped
	switch {
	case from.mayBecome(to):
		s.state, s.cause, s.since = to, cause, time.Now()
		s.failures.SetState(to.String())
	case !ending: // a fault of this package, which must not stay hidden
		s.failures.Note(slog.LevelError, "plugin cannot change its state so; please report this", "from", from.String(), "to", to.String())
		return
	case to.running() || to == StateStarting:
		return
	}
	if !to.running() { // there is no executable that runs
		s.about.pid, s.changed = 0, false
	}
	if cause != "" {
		s.failures.SetLast(time.Now(), cause)
	}
	if to == StateDraining {
		s.queue.Resume(true)
	}
	s.logLocked(to, cause, args)
}

// logLocked notes a change for the log. A plugin that fails repeatedly ends with the
// same cause each time, or with causes that differ only in a number. Each cause is
// logged once, up to mostCauses causes.
func (s *pluginStatus) logLocked(to State, cause string, args []any) {
	info := stateInfo[to]
	level, text := info.level, info.text
	if other, ok := attachedText[to]; ok && s.attached {
		text = other
	}
	if cause != "" {
		waiting, _ := s.queue.Load()
		args = append([]any{"waiting_spans", waiting}, args...)
		if to != StateDegraded { // another line has its cause
			args = append([]any{"cause", cause}, args...)
		}
	}
	if to == StateBackingOff && s.told.crash {
		level = slog.LevelWarn // the crash itself was the error
	}
	s.told.crash = false
	switch {
	case cause != "" && !to.running():
		if s.told.knows(to, cause) {
			level = slog.LevelDebug
			break
		}
		s.told.cause = causeText(to, cause)
		s.told.causes[to]++
	case to == StateReady && s.told.unsteady:
		if s.told.causes[to] >= mostCauses {
			level = slog.LevelDebug
			break
		}
		s.told.causes[to]++
	}
	s.failures.Note(level, text, args...)
}

// degrade is called when the plugin takes batches without delivering them, or does not
// answer. It only changes the state of a ready plugin.
func (s *pluginStatus) degrade(cause string) {
	defer s.failures.Write()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.degradeLocked(cause)
}

func (s *pluginStatus) degradeLocked(cause string) {
	s.failed = time.Now()
	if s.state == StateReady {
		s.setLocked(StateDegraded, cause)
	}
}

// delivered is called after a delivered batch. A degraded plugin becomes ready again if
// no call has failed for some time. Spans that the back end rejected are not the
// plugin's fault.
func (s *pluginStatus) delivered() {
	defer s.failures.Write()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.lastSuccess = time.Now()
	if time.Since(s.failed) >= failures.Calm {
		s.restoreLocked()
	}
}

// restoreLocked ends the degraded state.
func (s *pluginStatus) restoreLocked() {
	s.silent = false
	if s.state == StateDegraded {
		s.setLocked(StateReady, "", "again", true)
	}
}

// answers is called after any answer of the plugin: it is not silent.
func (s *pluginStatus) answers() {
	defer s.failures.Write()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		s.restoreLocked()
	}
}

// missed is called after a health check without an answer.
func (s *pluginStatus) missed(err error) {
	defer s.failures.Write()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent {
		s.failures.Note(slog.LevelWarn, "plugin gave no answer to a health check; three in a row and it is taken for hung", "error", err)
	}
	s.silent = true
	s.failures.SetLast(time.Now(), err.Error())
	s.degradeLocked(err.Error())
}

// ready is called after a process was described and configured.
func (s *pluginStatus) ready(about facts, args ...any) {
	defer s.failures.Write()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.about = about
	s.life.starts++
	s.changed, s.silent = false, false
	if !s.told.unsteady {
		s.told = told{}
	}
	s.setLocked(StateReady, "", append(args, "start", s.life.starts)...)
}

// steady is called when a plugin has been ready for long enough. It forgets the
// failures of earlier processes, so that later failures are logged again.
func (s *pluginStatus) steady() {
	defer s.failures.Write()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.steady()
	s.calmLocked()
	if s.told.unsteady {
		s.told = told{}
		s.failures.Note(slog.LevelInfo, "plugin is steady again", "state", s.state.String(), "crashes", s.life.crashes)
	}
}

// calmLocked ends the trouble of a plugin that delivered after its last failure, and
// has had nothing to deliver since then.
func (s *pluginStatus) calmLocked() {
	success := s.life.lastSuccess
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

// crashed counts a crash, and reports whether the plugin crashes too often. A crash
// that is not the fault of the plugin's code does not count against it.
func (s *pluginStatus) crashed(itsFault bool) (tooOften bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.crashes++
	s.life.lastCrash = time.Now()
	if itsFault {
		return s.breaker.crashed(s.life.lastCrash)
	}
	return s.breaker.open
}

// forgive removes the last crash from the breaker, because a batch caused it.
func (s *pluginStatus) forgive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.forgive()
}

// forget closes the breaker. Every cause is logged again, because an operator asked for
// a start.
func (s *pluginStatus) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker = breaker{}
	s.told = told{}
}

// setChanged sets whether the executable of the process pid has changed. It returns
// true if that was not known before.
func (s *pluginStatus) setChanged(pid int, changed bool) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about.pid != pid { // it is being replaced
		return false
	}
	news = changed && !s.changed
	s.changed = changed
	return news
}

// tell calls f, under the mutex, with the record of logged starts and ends.
func (s *pluginStatus) tell(f func(t *told)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.told)
}

// now returns the state.
func (s *pluginStatus) now() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// stats returns the state, the counts and the failures.
func (s *pluginStatus) stats() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{
		Path: s.about.path, Version: s.about.version, SDK: s.about.sdk, PID: s.about.pid, Granted: s.about.granted,
		State: s.state, Since: s.since, Cause: s.cause, Changed: s.changed,
		Starts: s.life.starts, Crashes: s.life.crashes, LastCrash: s.life.lastCrash, LastSuccess: s.life.lastSuccess,
	}
	out.Failures, out.LastError, out.LastErrorTime = s.failures.Recent()
	return out
}

// inherit takes over the counts of a plugin of the same name that has ended.
func (s *pluginStatus) inherit(before *pluginStatus) {
	before.mu.Lock()
	life := before.life
	before.mu.Unlock()
	s.failures.Inherit(before.failures)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = life
}

// told records the starts and ends of a plugin that were logged. It is empty after a
// steady process.
type told struct {
	// cause is the last cause of an end or a failed start. causes counts the causes by
	// state.
	cause  string
	causes [stateCount]int
	// lastCrash is the text of the last crash, and crashes the number of crashes. crash
	// is true if a crash was logged since the last change of state.
	lastCrash string
	crashes   int
	crash     bool
	// unsteady is true if a process became ready and ended before it was steady.
	unsteady bool
}

// mostCauses bounds the ends and failed starts that are logged until the plugin is
// steady again.
const mostCauses = 8

// knows reports whether this end must not be logged: its cause was the last one, or
// there were mostCauses causes.
func (t *told) knows(to State, cause string) bool {
	return causeText(to, cause) == t.cause || t.causes[to] >= mostCauses
}

// causeText returns the same text for causes that differ only in a random name.
func causeText(to State, cause string) string {
	return to.String() + ":" + failures.WithoutNumbers(cause, failures.IsShort)
}

// levelOfCrash returns the log level of a crash, and remembers the crash. A plugin that
// crashes repeatedly mostly does so in the same way.
func (t *told) levelOfCrash(crash string) slog.Level {
	level := slog.LevelError
	if crash == t.lastCrash || t.crashes >= mostCauses {
		level = slog.LevelDebug
	}
	t.lastCrash, t.crash = crash, true
	t.crashes++
	return level
}
