package otelplugin

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/servetrace/servetrace/pluginsdk"
)

// answer converts an error of an OpenTelemetry exporter to an error for Export. It
// converts OTLP's partial success to pluginsdk.Partial, and returns other errors
// unchanged.
func answer(err error) error {
	if rejected, message, ok := partialSuccess(err); ok {
		return pluginsdk.Partial(rejected, message)
	}
	return err
}

// partialSuccess returns the contents of OTLP's partial success. ok is false unless err
// is a partial success, or wraps or joins nothing else.
//
// Each OTLP client declares a struct PartialSuccess in an internal package, so the type
// can only be recognised by its name and fields. If a partial success were not
// recognised, the host would send delivered spans again.
func partialSuccess(err error) (rejected int, message string, ok bool) {
	if err == nil {
		return 0, "", false
	}
	if rejected, message, ok := asPartialSuccess(err); ok {
		return rejected, message, true
	}
	switch wrapper := err.(type) { //nolint:errorlint // every error of a join must be a partial success
	case interface{ Unwrap() error }:
		return partialSuccess(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range wrapper.Unwrap() {
			n, text, partial := partialSuccess(one)
			if !partial {
				return 0, "", false
			}
			rejected, message, ok = max(rejected, n), cmp.Or(message, text), true
		}
		return rejected, message, ok
	}
	return 0, "", false
}

// asPartialSuccess returns the fields of err if it is the struct PartialSuccess of an
// OTLP client.
func asPartialSuccess(err error) (rejected int, message string, ok bool) {
	v := reflect.ValueOf(err)
	if v.Kind() != reflect.Struct || v.Type().Name() != "PartialSuccess" {
		return 0, "", false
	}
	count, text := v.FieldByName("RejectedItems"), v.FieldByName("ErrorMessage")
	if !count.IsValid() || !count.CanInt() || !text.IsValid() || text.Kind() != reflect.String {
		return 0, "", false
	}
	// The number may be 0: then the message is a warning from the back end.
	return int(max(0, count.Int())), cmp.Or(text.String(), "the back end gave no reason"), true
}

// tally sums up the results of the chunks of a batch, as far as they have been replayed.
type tally struct {
	delivered, rejected int
	message             string // message of the first chunk with rejected spans
	final               error  // the first final error of a chunk
}

// add records the result of a chunk of n spans. If err is retryable, it returns err,
// because the whole batch must then be sent again. Otherwise it returns nil.
func (t *tally) add(n int, err error) error {
	if err == nil {
		t.delivered += n
		return nil
	}
	if rejected, message, ok := partial(err); ok {
		rejected = min(rejected, n)
		t.rejected, t.delivered = t.rejected+rejected, t.delivered+n-rejected
		t.message = cmp.Or(t.message, message)
		return nil
	}
	if !pluginsdk.Final(err) {
		return err
	}
	t.rejected += n
	t.message = cmp.Or(t.message, err.Error())
	if t.final == nil {
		t.final = err
	}
	return nil
}

func (t *tally) answer() error {
	switch {
	case t.message == "":
		return nil
	case t.delivered == 0 && t.final != nil:
		return t.final
	default:
		return pluginsdk.Partial(t.rejected, t.message)
	}
}

// partial returns the contents of a partial success: of OTLP, or of pluginsdk.Partial. ok
// is false for any other error.
func partial(err error) (rejected int, message string, ok bool) {
	if rejected, message, ok := pluginsdk.Rejected(err); ok {
		return rejected, message, true
	}
	return partialSuccess(err)
}

// worst returns the error that is the result of a chunk, or nil if there are no errors.
// It prefers a retryable error, so that no spans are lost. Then it prefers a final error,
// and last the partial success with the most rejected spans.
func worst(errs []error) error {
	var retryable []error
	var final, part error
	most := -1
	for _, err := range errs {
		rejected, _, isPartial := partial(err)
		switch {
		case isPartial && rejected > most:
			most, part = rejected, err
		case isPartial:
		case pluginsdk.Final(err):
			if final == nil {
				final = err
			}
		default:
			retryable = append(retryable, err)
		}
	}
	switch {
	case len(retryable) == 1:
		return retryable[0]
	case len(retryable) > 1:
		return fmt.Errorf("%w (and %d more, such as: %w)", retryable[0], len(retryable)-1, retryable[1])
	case final != nil:
		return final
	default:
		return part
	}
}
