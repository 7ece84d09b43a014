package host

import "time"

// The breaker opens at so many crashes within so long. Then one start is tried
// at each end of probeEvery, and one that is ready for healthyAfter closes it.
const (
	breakerCrashes = 5
	breakerWindow  = 60 * time.Second
	probeEvery     = 60 * time.Second
)

// breaker keeps a plugin that crashes again and again from being started again
// and again. The zero value is closed. Not safe for concurrent use.
type breaker struct {
	crashes []time.Time // within the window, the oldest first
	open    bool
}

// crashed counts a crash and tells whether the breaker is open.
func (b *breaker) crashed(now time.Time) bool {
	for len(b.crashes) > 0 && now.Sub(b.crashes[0]) >= breakerWindow {
		b.crashes = b.crashes[1:]
	}
	b.crashes = append(b.crashes, now)
	if len(b.crashes) >= breakerCrashes {
		b.open = true
		b.crashes = b.crashes[len(b.crashes)-breakerCrashes:]
	}
	return b.open
}

// lived closes the breaker after a process that was well for long enough.
func (b *breaker) lived() {
	if b.open {
		*b = breaker{}
	}
}

// reset closes the breaker: somebody says that all is well now.
func (b *breaker) reset() { *b = breaker{} }
