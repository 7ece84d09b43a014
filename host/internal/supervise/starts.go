package supervise

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
)

// starts decides when Plugin.Run starts the plugin, and when it starts the plugin again.
// Only Run uses it.
type starts struct {
	x *Plugin
	// asked has the calls of Reload that wait for the next start.
	asked []chan<- error
	// inARow is the number of failed starts and short lives since the last steady life, or
	// since the last Reload.
	inARow int
	// seen are the plugin's files before the last start, so that a change during that start
	// is noticed. Zero if the disk did not answer.
	seen files
}

// awaitFirst waits at most Settings.StartJitter, at random, because many hosts that start
// together must not start all plugins at once. It reports whether the start is due. It
// returns false if the plugin ends.
func (s *starts) awaitFirst() (due bool) {
	most := s.x.sup.cfg.StartJitter
	if most <= 0 || s.x.Entry.Attached {
		return true
	}
	return s.pause(rand.N(most), nil)
}

// runLife starts the plugin, and sends batches to it until its end (Plugin.serve). It
// returns the last life and the reason for its end, or the reason why the plugin did not
// start. It is the last life because a Reload may replace the process.
func (s *starts) runLife() (*life, error) {
	x := s.x
	l := newLife(x)
	x.status.set(StateStarting, "")
	s.seen, _ = x.files.look(x.ctx)
	err := l.begin(x.ctx)
	answerAll(s.asked, reloadError(x.Entry.Name, err))
	s.asked = nil
	if err != nil {
		return l, err
	}
	x.Queue.SetHopeless(false)
	return x.serve(l)
}

// awaitNext records the end of a life, and waits until the next start is due. It returns
// false if the plugin ends.
func (s *starts) awaitNext(l *life, err error) (due bool) {
	x := s.x
	if l.wasSteady() {
		s.inARow = 0
		l.recordSteady() // the first call of pulse may not have come yet
		if x.Entry.Attached {
			// A server may close connections to spread its load, or because it is replaced. If
			// the server has ended, the log line of the next start shows it.
			x.log.Info("connection to the plugin is dialled again", "cause", err)
			return true
		}
	}
	state := s.recordFailure(l, err)
	due = s.awaitRetry(state)
	s.inARow++
	if s.asked != nil { // Reload asks for the next start, and the pauses begin anew
		s.inARow = 0
	}
	return due
}

// recordFailure records the end of a life that the host did not ask for, or a failed
// start. It returns the new state. An end that is not the fault of the plugin's code does
// not count for the breaker.
func (s *starts) recordFailure(l *life, err error) State {
	x := s.x
	state := stateAfter(err)
	if c, crashed := errors.AsType[*crash](err); crashed {
		blamed := !c.blameless && (l.sender == nil || !l.sender.verdict.Blameless)
		if x.status.crashed(blamed) && !x.Entry.Attached && state == StateBackingOff {
			state = StateBroken
		}
	}
	known := false // whether the log has this cause already, and the output that came with it
	x.status.withLogMemory(func(m *logMemory) { known = m.knows(state, err.Error()) })
	x.status.set(state, err.Error())
	if known {
		l.startLog.dropHeld()
	} else {
		l.startLog.writeHeld()
	}
	x.Queue.SetHopeless(needsMending(state, err))
	if l.wasReady() && !l.wasSteady() {
		x.status.withLogMemory(func(m *logMemory) { m.unsteady = true })
	}
	return state
}

// restartFirst is the first pause before a start. The longest is policy.mostPause.
const restartFirst = 200 * time.Millisecond

// lookEvery is the interval of looks at an incompatible or untrusted file.
const lookEvery = 5 * time.Second

// awaitRetry waits until a plugin in this state is to be started again. It returns false
// if the plugin ends.
func (s *starts) awaitRetry(state State) (due bool) {
	cfg := &s.x.sup.cfg
	wait := pipeline.Backoff{First: restartFirst, Most: boundPause(cfg, policyOf(s.x.Entry).mostPause)}.Pause(s.inARow)
	look := (<-chan time.Time)(nil)
	switch {
	case s.x.draining.Err() != nil:
		wait = restartFirst
	case state == StateBroken:
		wait = boundPause(cfg, brokenPause)
	case (state == StateIncompatible || state == StateUntrusted) && !s.x.Entry.Attached:
		wait = math.MaxInt64 // until a look finds a change, Reload asks, or the plugin ends
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	return s.pause(wait, look)
}

// boundPause returns the pause between two starts, but at most half of MaxAge. So the next
// start comes while the waiting batches are young enough to be delivered.
func boundPause(cfg *Settings, pause time.Duration) time.Duration {
	return min(pause, max(leastBound, cfg.MaxAge/2))
}

// leastBound is the least bound of boundPause. It applies if MaxAge is small.
const leastBound = time.Second

// pause waits for a duration, and sets asked. It returns early if Reload asks for a start,
// or if the files have changed at a look. It also returns early if the host shuts down and
// batches wait for the plugin. It returns false if no start is due, because the plugin
// ends.
func (s *starts) pause(wait time.Duration, look <-chan time.Time) (due bool) {
	x := s.x
	timer := time.NewTimer(wait)
	defer timer.Stop()
	draining := x.draining.Done()
	if x.draining.Err() != nil {
		draining = nil
	}
	for {
		select {
		case <-timer.C:
			return true
		case <-draining:
			return x.ctx.Err() == nil
		case <-look:
			if now, err := x.files.look(x.ctx); err == nil && now != s.seen {
				return true
			}
		case first := <-x.reloading.asked:
			x.status.forget()
			s.asked = x.reloading.all(first)
			return true
		case <-x.ctx.Done():
			return false
		}
	}
}
