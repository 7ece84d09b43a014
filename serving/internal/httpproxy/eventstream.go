package httpproxy

import (
	"net/http"
	"strings"
)

// eventStream is the state of a response that may carry server-sent events.
type eventStream struct {
	on   bool // the response has the content type text/event-stream
	line bool // the last written byte ended a line
}

// endsEvent reports whether b ends with the empty line that ends a server-sent event. The
// caller then flushes b, so that the client gets the event at once. Before the call, *line
// reports whether the bytes before b ended a line. endsEvent updates it for b.
//
// Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
func endsEvent[T string | []byte](b T, line *bool) bool {
	before, n := *line, len(b)
	if n == 0 {
		return false
	}
	*line = b[n-1] == '\n'
	if !*line {
		return false
	}
	n--
	if n > 0 && b[n-1] == '\r' {
		n--
	}
	return n == 0 && before || n > 0 && b[n-1] == '\n'
}

func isEventStream(h http.Header) bool {
	types := h["Content-Type"]
	return len(types) > 0 && strings.HasPrefix(types[0], "text/event-stream")
}
