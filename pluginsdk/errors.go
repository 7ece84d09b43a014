package pluginsdk

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// ErrNotHosted is returned by [Run] if Environ lacks the handshake's variable, because no
// host started the plugin, and Args has no argument. Run has printed a usage text.
var ErrNotHosted = errors.New("not started by a servetrace host")

// Permanent returns err marked as final: the host drops the batch, counts it and does not
// send it again. Use it if the back end refuses the data or the credentials. It returns
// nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	// A final gRPC code of the back end is more specific, so it is kept.
	if own := wire.FromStatus(err); own.Final && own.Code != "UNKNOWN" {
		return &wire.Error{Code: own.Code, Final: true, Err: err}
	}
	return &wire.Error{Code: wire.CodeFinal, Final: true, Err: err}
}

// RetryAfter returns err marked as retryable after d, as requested by the back end
// (Retry-After, RetryInfo). If d is zero or negative, the host uses its own backoff. It
// returns nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &wire.Error{Code: wire.CodeRetry, After: max(0, d), Err: err}
}

// ReadRetryAfter returns the delay in the Retry-After header of a back end's response, for
// [RetryAfter]. The header holds seconds or a date. A date is compared with the response's
// Date header, or with the local clock if there is none. d is 0 to 24 hours. ok is false,
// and d 0, if the header is missing or malformed:
// https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
func ReadRetryAfter(h http.Header) (d time.Duration, ok bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	const most = 24 * time.Hour // longer than any host retries, and too short for an overflow
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(most/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), most), true
}

// Partial returns the error for a batch of which the back end rejected some spans. The
// host counts that number as rejected and the rest as delivered, shows message, and
// sends nothing again. A number above the number of spans in the batch means the whole
// batch. It is OTLP's partial success:
// https://opentelemetry.io/docs/specs/otlp/#partial-success
func Partial(rejected int, message string) error {
	return &partialError{max(0, rejected), message}
}

type partialError struct {
	rejected int
	message  string
}

func (e *partialError) Error() string {
	return fmt.Sprintf("%d spans rejected: %s", e.rejected, e.message)
}

// asPartial returns the Partial that err wraps. It returns nil if there is none. It also
// returns nil if err holds another error too, because then more spans than the rejected
// spans were not delivered. It also returns nil for a Partial inside a Permanent or a
// RetryAfter.
func asPartial(err error) *partialError {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // errors.As would also search joined errors
		case *partialError:
			return e
		case *wire.Error:
			return nil
		case interface{ Unwrap() []error }:
			list := e.Unwrap()
			if len(list) != 1 {
				return nil
			}
			err = list[0]
		default:
			err = errors.Unwrap(err)
		}
	}
	return nil
}

// Final reports whether err, returned by [Exporter.Export], ends the batch: the host counts
// it as rejected and does not send it again. It is true for [Permanent] and for a gRPC
// status with a final code. It is false for nil and for a [Partial], see [Rejected]. Both
// functions are for an exporter that combines other exporters.
func Final(err error) bool {
	return err != nil && asPartial(err) == nil && wire.FromStatus(wire.ToStatus(err)).Final
}

// Rejected returns the arguments of the [Partial] in err. ok is false, and the rest zero,
// if err is not a Partial or holds another error beside it.
func Rejected(err error) (spans int, message string, ok bool) {
	partial := asPartial(err)
	if partial == nil {
		return 0, "", false
	}
	return partial.rejected, partial.message, true
}

// ConfigError is the error of a constructor about one setting.
type ConfigError struct {
	// Path is the name of a variable, or a path in the configuration ("headers.x-api-key").
	// It is empty if the error is about the whole configuration.
	Path string
	// Err states the value seen and the values allowed. Required.
	Err error
}

// Error returns Path and the text of Err.
func (e *ConfigError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }
