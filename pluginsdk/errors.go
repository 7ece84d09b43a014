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

// ErrNotHosted is returned by [Run] if no host started the plugin and Env.Args has no
// arguments. Run recognises a host by a variable in Env.Environ. Before it returns
// ErrNotHosted, it prints a usage text.
var ErrNotHosted = errors.New("not started by a servetrace host")

// Permanent marks err as final: the host counts the batch as rejected and does not send
// it again. Use it if the back end refuses the data or the credentials. The result wraps
// err. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	// If err already has a final gRPC code, that code is kept, because it is more specific.
	if own := wire.FromStatus(err); own.Final && own.Code != "UNKNOWN" {
		return &wire.Error{Code: own.Code, Final: true, Err: err}
	}
	return &wire.Error{Code: wire.CodeFinal, Final: true, Err: err}
}

// RetryAfter marks err as retryable: the host sends the batch again after d, which the
// back end has asked for (Retry-After, RetryInfo). If d is zero or negative, the host
// chooses the delay. The result wraps err. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &wire.Error{Code: wire.CodeRetry, After: max(0, d), Err: err}
}

// ReadRetryAfter returns the delay in the header Retry-After of a back end's response, as
// an argument for [RetryAfter]. The header holds seconds or a date. A date is compared
// with the response's header Date, or with the local clock if there is none. d is between
// 0 and 24 hours. If the header is missing or malformed, d is 0 and ok is false. The
// header is defined at https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
func ReadRetryAfter(h http.Header) (d time.Duration, ok bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	const most = 24 * time.Hour // the largest delay: longer than any host retries, and too small to overflow
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

// Partial returns an error for Export to return if the back end rejected some spans and
// accepted all others. The host counts rejected spans as rejected, and all others as
// delivered. It shows message to the operator, and does not send the batch again. A
// number above the number of spans in the batch means the whole batch. A negative number
// means zero. Partial corresponds to OTLP's partial success:
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

// asPartial returns the Partial that err is or wraps, and otherwise nil. It returns nil
// if err also joins another error, because then the number of rejected spans is not
// known. It also returns nil for a Partial inside of Permanent or RetryAfter.
func asPartial(err error) *partialError {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // errors.As would also find a Partial that is joined with other errors
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

// Final reports whether err, returned by [Exporter.Export], is final: the host counts the
// whole batch as rejected and does not send it again. It returns true for [Permanent],
// and for a gRPC status with a code that OTLP does not retry. It returns false for nil
// and for [Partial]. Final and [Rejected] are for an exporter that combines other
// exporters.
func Final(err error) bool {
	return err != nil && asPartial(err) == nil && wire.FromStatus(wire.ToStatus(err)).Final
}

// Rejected returns the arguments of the [Partial] that err is or wraps. If err neither is
// nor wraps a Partial, or joins a Partial with another error, ok is false and the other
// results are zero.
func Rejected(err error) (spans int, message string, ok bool) {
	partial := asPartial(err)
	if partial == nil {
		return 0, "", false
	}
	return partial.rejected, partial.message, true
}

// ConfigError is an error about one setting of the operator. Constructors return it.
type ConfigError struct {
	// Path is the name of a variable, or a path in the configuration ("headers.x-api-key").
	// It is empty if the error is about the whole configuration.
	Path string
	// Err describes the value that was found and the values that are allowed. It is
	// required.
	Err error
}

// Error returns Path, a colon and the text of Err, or only the text if Path is empty.
func (e *ConfigError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }
