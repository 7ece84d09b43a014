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

// ErrNotHosted is what [Run] returns when no host started the plugin: the
// handshake's variable is missing. What to do about it has been printed.
var ErrNotHosted = errors.New("not started by a servetrace host")

// Permanent marks an error as final: the host drops the batch, counts it and
// does not send it again. Use it where the back end refuses the data or the
// credentials. It is nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	// A back end's own final code is kept, for it says more in the span account.
	if own := wire.FromStatus(err); own.Final && own.Code != "UNKNOWN" {
		return &wire.Error{Code: own.Code, Final: true, Err: err}
	}
	return &wire.Error{Code: wire.CodeFinal, Final: true, Err: err}
}

// RetryAfter marks an error as one that the back end wants d of rest for
// (Retry-After, RetryInfo). d of zero or less leaves the pace to the host's
// backoff. It is nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &wire.Error{Code: wire.CodeRetry, After: max(0, d), Err: err}
}

// ReadRetryAfter reads the header of that name in a back end's answer, for
// [RetryAfter]: seconds, or a date, which is taken by the server's clock where
// the answer has its time. d is 0 to 24 hours; ok is false, and d 0, where there
// is no such header, or one that makes no sense:
// https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
func ReadRetryAfter(h http.Header) (d time.Duration, ok bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	const most = 24 * time.Hour // beyond any host's patience, and far from an overflow
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

// Partial is what an exporter returns when the back end took the batch but for
// some spans: the host counts them as rejected and the others as delivered,
// shows message, and sends nothing again. rejected beyond the batch's length
// counts as all of it. It is OTLP's partial success:
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

// asPartial finds a Partial that err wraps. It is nil if there is none, or if
// err says more: a join's other errors, and Permanent or RetryAfter around it,
// mean that something else was not delivered.
func asPartial(err error) *partialError {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // errors.As would look into joins of several
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

// Final tells whether err, returned from [Exporter.Export], ends the batch: the
// host counts it as rejected and does not send it again. It is so for
// [Permanent], and for a gRPC status whose code is final; not for nil, and not
// for a [Partial], which [Rejected] reads. Both are for an exporter that is made
// of others and has to answer for all of them.
func Final(err error) bool {
	return err != nil && asPartial(err) == nil && wire.FromStatus(wire.ToStatus(err)).Final
}

// Rejected gives what a [Partial] says. ok is false if err is none, or says
// more, and then the rest is zero.
func Rejected(err error) (spans int, message string, ok bool) {
	partial := asPartial(err)
	if partial == nil {
		return 0, "", false
	}
	return partial.rejected, partial.message, true
}

// ConfigError is a constructor's word on one setting that it cannot work
// with.
type ConfigError struct {
	// Path is a variable's name, or a path in the document
	// ("headers.x-api-key"). Empty: the whole.
	Path string
	// Err says the value seen and what is allowed.
	Err error
}

// Error is path and cause.
func (e *ConfigError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *ConfigError) Unwrap() error { return e.Err }
