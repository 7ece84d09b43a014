package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// DefaultMaxJSONBytes is the largest size of the body of a request to [JSON] or
// [JSONStream], 4 MiB, unless [WithMaxJSONBytes] sets another limit.
const DefaultMaxJSONBytes = 4 << 20

// JSONOption changes a handler of [JSON] or [JSONStream].
type JSONOption struct{ apply func(*jsonInput) }

// WithMaxJSONBytes sets the largest size of the body of a request, in bytes, 1 or more. The
// default is [DefaultMaxJSONBytes]. A request with a larger body gets status 413.
func WithMaxJSONBytes(n int64) JSONOption {
	return JSONOption{func(in *jsonInput) { in.maxBytes = n }}
}

// JSON returns an HTTP handler that calls the function f, such as handle.Call or batcher.Do.
// The handler decodes the body of the request, a JSON value, into In. It sends the result of
// f as JSON, with status 200. For GET and HEAD requests, which have no body, f gets the zero
// In. Requests with other methods must have a body. The handler ignores JSON fields that In
// does not have, and the Content-Type of the request.
//
// If a body is not JSON, or cannot be decoded into In, the client gets 400 and a text that
// names the place of the fault. If f returns an error, the client gets 500, or 503 for a
// [*QueueFullError], as with a [HandlerFunc].
func JSON[In, Out any](f func(context.Context, In) (Out, error), opts ...JSONOption) http.Handler {
	input := newJSONInput(opts)
	return HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if ok, err := input.read(w, r, &in); !ok {
			return err
		}
		out, err := f(r.Context(), in)
		if err != nil {
			return err
		}
		body, err := json.Marshal(out)
		if err != nil {
			return fmt.Errorf("encode response: %w", err)
		}
		w.Header()["Content-Type"] = []string{"application/json"}
		_, err = w.Write(append(body, '\n'))
		return err
	})
}

// JSONStream is [JSON] for a function that returns a stream, such as [StreamHandle.Stream].
// The handler sends and flushes each value at once. A client that accepts text/event-stream,
// such as EventSource in browsers, gets each value as a server-sent event with the JSON as
// its data. Any other client gets each value as a line of JSON (application/x-ndjson).
//
// If f yields an error before the first value, the client gets the status as with [JSON].
// After the first value, the connection is cut, so that the client does not take the
// beginning for the whole response.
func JSONStream[In, Out any](f func(context.Context, In) iter.Seq2[Out, error], opts ...JSONOption) http.Handler {
	input := newJSONInput(opts)
	return HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if ok, err := input.read(w, r, &in); !ok {
			return err
		}
		before, after := "", "\n"
		w.Header()["Content-Type"] = []string{"application/x-ndjson"}
		if acceptsEvents(r.Header) {
			before, after = "data: ", "\n\n"
			w.Header()["Content-Type"] = []string{"text/event-stream"}
			w.Header()["Cache-Control"] = []string{"no-cache"}
		}
		flush := http.NewResponseController(w).Flush
		var line []byte
		for out, err := range f(r.Context(), in) {
			if err != nil {
				return err
			}
			body, err := json.Marshal(out)
			if err != nil {
				return fmt.Errorf("encode response: %w", err)
			}
			line = append(append(append(line[:0], before...), body...), after...)
			if _, err = w.Write(line); err != nil {
				return err
			}
			if err = flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return err
			}
		}
		return nil
	})
}

// acceptsEvents reports whether the header Accept names text/event-stream.
func acceptsEvents(h http.Header) bool {
	for _, accept := range h["Accept"] {
		for part := range strings.SplitSeq(accept, ",") {
			mediaType, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream") {
				return true
			}
		}
	}
	return false
}

// jsonInput reads the bodies of requests as JSON.
type jsonInput struct{ maxBytes int64 }

func newJSONInput(opts []JSONOption) *jsonInput {
	in := &jsonInput{maxBytes: DefaultMaxJSONBytes}
	for _, o := range opts {
		o.apply(in)
	}
	return in
}

// read decodes the body of r into the value that value points to. If the body is invalid,
// read sends the response and returns false and no error.
func (in *jsonInput) read(w http.ResponseWriter, r *http.Request, value any) (ok bool, err error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, in.maxBytes))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		http.Error(w, fmt.Sprintf("request body: more than %d bytes", in.maxBytes), http.StatusRequestEntityTooLarge)
		return false, nil
	case err != nil && r.Context().Err() == nil && !cause.IsCancellation(err):
		http.Error(w, "request body: "+err.Error(), http.StatusBadRequest)
		return false, nil
	case err != nil:
		return false, err
	}
	if err := json.Unmarshal(body, value); err != nil {
		http.Error(w, "request body: "+jsonFault(body, err), http.StatusBadRequest)
		return false, nil
	}
	return true, nil
}

// jsonFault returns the text for a client after json.Unmarshal has returned err for its body.
func jsonFault(body []byte, err error) string {
	if len(body) == 0 {
		return "empty, want JSON"
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("not JSON, at byte %d: %v", syntax.Offset, err)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		where := ""
		if kind.Field != "" {
			where = fmt.Sprintf("field %q: ", kind.Field)
		}
		return fmt.Sprintf("%sgot a JSON %s, want one for %v", where, kind.Value, kind.Type)
	}
	return err.Error()
}
