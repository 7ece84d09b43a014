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

// DefaultMaxJSONBytes is the largest body of a request to [JSON] or [JSONStream], unless
// [WithMaxJSONBytes] sets another limit: 4 MiB.
const DefaultMaxJSONBytes = 4 << 20

// JSONOption changes a handler of [JSON] or [JSONStream].
type JSONOption struct{ apply func(*jsonInput) }

// WithMaxJSONBytes sets the largest body of a request, 1 or more bytes. The default is
// [DefaultMaxJSONBytes]. A larger body is answered with status 413.
func WithMaxJSONBytes(n int64) JSONOption {
	return JSONOption{func(in *jsonInput) { in.maxBytes = n }}
}

// JSON makes a function an HTTP handler, so that it can be a deployment's ingress:
// JSON(f), JSON(handle.Call), or JSON(batcher.Do). The request's body, one JSON value, is
// decoded into In; the result of f is sent as JSON, with status 200. For GET and HEAD,
// which have no body, f gets the zero In; all other methods must have a body. Fields that
// In does not have are ignored, and so is the request's Content-Type.
//
// If a body is not JSON, or does not fit In, the client gets 400 and a text with the
// place of the fault. An error of f has the effect of a [HandlerFunc]'s: 500, or
// 503 for a [*QueueFullError].
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

// JSONStream is [JSON] for a function that answers with a stream, such as the
// Stream of a [StreamHandle]. Each value is sent, and flushed, as it comes: to
// clients that accept text/event-stream (browsers' EventSource) as a
// server-sent event with the JSON as its data, to others as one line of JSON
// (application/x-ndjson).
//
// An error before the first value has the effect of a [HandlerFunc]'s. After that the
// connection is cut, so that the client does not take the beginning for the whole
// response.
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

// jsonInput has the settings for reading requests.
type jsonInput struct{ maxBytes int64 }

func newJSONInput(opts []JSONOption) *jsonInput {
	in := &jsonInput{maxBytes: DefaultMaxJSONBytes}
	for _, o := range opts {
		o.apply(in)
	}
	return in
}

// read decodes r's body into value, a pointer. If the body is wrong, read sends the
// response and returns false without an error.
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

// jsonFault returns a text for a client about an error in its JSON.
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
