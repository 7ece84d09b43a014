package tracing

import "time"

var began = time.Now()

// Clock returns a reading of the monotonic clock since the process began.
//
// Deprecated: spans take their times from the OpenTelemetry SDK, and the At
// fields are not read.
func Clock() time.Duration { return time.Since(began) }

// Within does nothing.
//
// Deprecated: a span's context is allocated.
type Within struct{}
