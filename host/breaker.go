package host

import (
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// The breaker opens at so many crashes within so long. Then one start is tried
// at the end of each pause of at most probeMostPause, and a process that is
// steady closes it.
const (
	breakerCrashes = 5
	breakerWindow  = 60 * time.Second
	probeMostPause = 60 * time.Second
)

// leastMostPause bounds how often a plugin is started that never works, however
// small Config.MaxAge is.
const leastMostPause = time.Second

// inTime shortens the longest pause between two starts to half of
// Config.MaxAge: a batch that waits for the plugin meets a start while it is
// young enough to be delivered.
func (c *Config) inTime(pause time.Duration) time.Duration {
	return min(pause, max(leastMostPause, c.MaxAge/2))
}

// endedByOthers reports whether a process that was ready ended by no fault of its
// code: by a signal from outside, or with status 0, which is how a plugin ends
// that was asked to by such a signal. A kill for lack of memory that the kernel
// has counted is the plugin's fault.
func endedByOthers(r launch.Report) bool {
	inOrder := r.Exit != "" && r.Signal == "" && r.ExitCode == 0 && r.Killed == ""
	return inOrder || !mayBeToBlame(r)
}

// breaker keeps a plugin that crashes again and again from being started again
// and again. The zero value is closed. Not safe for concurrent use.
type breaker struct {
	crashes []time.Time // the last ones, the oldest first, while it is closed
	open    bool
}

// crashed counts a crash and tells whether the breaker is open.
func (b *breaker) crashed(now time.Time) bool {
	if b.open {
		return true
	}
	b.crashes = append(b.crashes, now)
	if len(b.crashes) > breakerCrashes {
		b.crashes = b.crashes[1:]
	}
	b.open = len(b.crashes) == breakerCrashes && now.Sub(b.crashes[0]) < breakerWindow
	return b.open
}

// forgive takes back the crash that was counted last.
func (b *breaker) forgive() {
	if !b.open && len(b.crashes) > 0 {
		b.crashes = b.crashes[:len(b.crashes)-1]
	}
}

// steady closes the breaker if it is open: the process of a probe has lived.
func (b *breaker) steady() {
	if b.open {
		b.reset()
	}
}

// reset closes the breaker: somebody says that all is well now.
func (b *breaker) reset() { *b = breaker{} }
