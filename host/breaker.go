package host

import "time"

// The breaker opens at so many crashes within so long. Then one start is tried
// at each end of probeEvery, and one that is steady closes it.
const (
	breakerCrashes = 5
	breakerWindow  = 60 * time.Second
	probeEvery     = 60 * time.Second
)

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
