package supervise

import (
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

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

// forgive removes the last crash.
func (b *breaker) forgive() {
	if !b.open && len(b.crashes) > 0 {
		b.crashes = b.crashes[:len(b.crashes)-1]
	}
}

// steady closes the breaker if it is open, because a process was steady.
func (b *breaker) steady() {
	if b.open {
		*b = breaker{}
	}
}

// endedByOthers reports whether a ready process ended without a fault of its code: by a
// signal from outside, or with status 0, which may follow such a signal. If the kernel has
// counted a kill for lack of memory, the plugin is at fault.
func endedByOthers(r launch.Report) bool {
	inOrder := r.Exit != "" && r.Signal == "" && r.ExitCode == 0 && r.Killed == ""
	return inOrder || !mayBeToBlame(r)
}

// mayBeToBlame reports whether a process may have ended because of its work. A signal
// from another process does not count. A kill by this host, or by the kernel for lack of
// memory, counts.
func mayBeToBlame(r launch.Report) bool {
	if r.Killed != "" || r.OOM {
		return true
	}
	switch r.Signal {
	case "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP":
		return false
	}
	return true
}
