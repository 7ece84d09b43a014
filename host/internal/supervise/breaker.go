package supervise

import "time"

// The breaker opens after breakerCrashes crashes within breakerWindow. Then each pause
// before a start is brokenPause, until a steady process or a Reload closes the breaker.
const (
	breakerCrashes = 5
	breakerWindow  = 60 * time.Second
	brokenPause    = 60 * time.Second
)

// breaker is a circuit breaker that opens if a plugin crashes too often. The zero value is
// closed. It is not safe for concurrent use.
type breaker struct {
	crashes []time.Time // times of the last crashes, oldest first, while the breaker is closed
	open    bool
}

// crashed counts a crash and reports whether the breaker is open.
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

// forgive removes the last crash from the count, because it was not the plugin's fault.
// It does not close an open breaker.
func (b *breaker) forgive() {
	if !b.open && len(b.crashes) > 0 {
		b.crashes = b.crashes[:len(b.crashes)-1]
	}
}

// steady closes the breaker if it is open, because a process was ready for a while
// without a crash.
func (b *breaker) steady() {
	if b.open {
		*b = breaker{}
	}
}
