package launch

import "time"

// Of a plugin's output so much goes to the log: enough for one that says much
// at its start or end, and little enough for a log that is kept. More than that
// is read all the same, so that a plugin never blocks on its output, and
// counted.
const (
	linesPerSecond = 100
	bytesPerSecond = 32 << 10
	// burstLines and burstBytes may come at once.
	burstLines = 200
	burstBytes = 64 << 10
)

// allowance is what a plugin may still log: two buckets that fill with time.
// Once one is empty nothing is allowed until both are half full, so that what
// is logged of too much are lines that follow each other.
type allowance struct {
	lines, bytes float64
	filled       time.Time
	shut         bool
}

// fill adds what the time since the last call is worth. It tells whether
// nothing is allowed now.
func (a *allowance) fill(now time.Time) (shut bool) {
	since := now.Sub(a.filled).Seconds()
	if a.filled.IsZero() {
		since = burstBytes // seconds enough
	}
	a.filled = now
	a.lines = min(burstLines, a.lines+since*linesPerSecond)
	a.bytes = min(burstBytes, a.bytes+since*bytesPerSecond)
	a.shut = a.shut && (a.lines < burstLines/2 || a.bytes < burstBytes/2)
	return a.shut
}

// take takes a line, if one is allowed; it may be longer than what is left,
// and then those after it wait for longer.
func (a *allowance) take(size int) bool {
	a.shut = a.shut || a.lines < 1 || a.bytes <= 0
	if a.shut {
		return false
	}
	a.lines--
	a.bytes -= float64(size)
	return true
}
