package otelplugin

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/servetrace/servetrace/pluginsdk"
)

// answer is what a plugin answers where an exporter of OpenTelemetry returned
// err: the same, but for OTLP's partial success.
func answer(err error) error {
	if rejected, message, ok := partialSuccess(err); ok {
		return pluginsdk.Partial(rejected, message)
	}
	return err
}

// partialSuccess tells whether err is OTLP's partial success and nothing else,
// whatever wraps it.
//
// The clients of OTLP give it as a struct PartialSuccess, each from an internal
// package of its own, so the type can only be known by its looks. If it was
// taken for any other error, the host would send again what has arrived.
func partialSuccess(err error) (rejected int, message string, ok bool) {
	if err == nil {
		return 0, "", false
	}
	if rejected, message, ok := asPartialSuccess(err); ok {
		return rejected, message, true
	}
	switch wrapper := err.(type) { //nolint:errorlint // all of a join must be partial success
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

// asPartialSuccess reads the clients' type.
func asPartialSuccess(err error) (rejected int, message string, ok bool) {
	v := reflect.ValueOf(err)
	if v.Kind() != reflect.Struct || v.Type().Name() != "PartialSuccess" {
		return 0, "", false
	}
	count, text := v.FieldByName("RejectedItems"), v.FieldByName("ErrorMessage")
	if !count.IsValid() || !count.CanInt() || !text.IsValid() || text.Kind() != reflect.String {
		return 0, "", false
	}
	// A collector that rejects nothing and says something means a warning.
	return int(max(0, count.Int())), cmp.Or(text.String(), "the back end gave no reason"), true
}

// tally is what became of the pieces of a batch so far.
type tally struct {
	delivered, rejected int
	message             string // of the first that was not wholly delivered
	final               error  // the first that ended a piece
}

// add counts a piece of n spans that ended with err. It gives the error that
// ends the batch: one that calls for sending it again.
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

// answer is the answer for the whole batch.
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

// partial finds partial success in err, of OTLP's form or of ours.
func partial(err error) (rejected int, message string, ok bool) {
	if rejected, message, ok := pluginsdk.Rejected(err); ok {
		return rejected, message, true
	}
	return partialSuccess(err)
}

// worst is the error that counts of those that one piece has met: one that
// calls for sending again if there is one, lest something is lost; else one
// that is final; else partial success, of which the largest counts. It is nil
// for none.
func worst(errs []error) error {
	var again []error
	var ended, part error
	most := -1
	for _, err := range errs {
		rejected, _, isPartial := partial(err)
		switch {
		case isPartial && rejected > most:
			most, part = rejected, err
		case isPartial:
		case pluginsdk.Final(err):
			if ended == nil {
				ended = err
			}
		default:
			again = append(again, err)
		}
	}
	switch {
	case len(again) == 1:
		return again[0]
	case len(again) > 1:
		return fmt.Errorf("%w (and %d more, such as: %w)", again[0], len(again)-1, again[1])
	case ended != nil:
		return ended
	default:
		return part
	}
}
