package otlpwire

import (
	"math"
	"time"

	"go.opentelemetry.io/otel/codes"
)

// Bits of the flags of a span or a link, besides the W3C trace flags in the low 8 bits.
// FlagRemote reports that the span's parent, or the link's target, is remote. It is valid
// only with FlagRemoteKnown.
const (
	FlagRemoteKnown = 1 << 8
	FlagRemote      = 1 << 9
)

// OTLP's numbers of Ok and Error. codes.Code has these two numbers exchanged:
// https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
const (
	statusOK    = 1
	statusError = 2
)

// StatusNumber returns OTLP's number of a status code.
func StatusNumber(c codes.Code) int32 {
	switch c {
	case codes.Ok:
		return statusOK
	case codes.Error:
		return statusError
	}
	return 0
}

// StatusCode returns the status code for OTLP's number. It returns Unset for an unknown number.
func StatusCode(number int32) codes.Code {
	switch number {
	case statusOK:
		return codes.Ok
	case statusError:
		return codes.Error
	}
	return codes.Unset
}

// UnixNano returns t in nanoseconds since 1970. It returns 0 for times before 1970, and
// the largest int64 for times after 2262.
func UnixNano(t time.Time) uint64 {
	if s := t.Unix(); s < 0 {
		return 0
	} else if s >= math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return uint64(max(0, t.UnixNano()))
}

// UnixTime is the inverse of UnixNano, in UTC.
func UnixTime(nanos uint64) time.Time {
	return time.Unix(0, int64(min(nanos, math.MaxInt64))).UTC()
}
