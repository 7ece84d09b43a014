package serving

import "time"

// clockBegan is where clock counts from.
var clockBegan = time.Now()

// clock is for measuring how long something takes: the difference of two readings.
// A reading costs less than half of [time.Now], which asks for the time of day
// too: 78 ns against 182 where we measured.
func clock() time.Duration { return time.Since(clockBegan) }
