package httpproxy

import (
	"net/http"
	"strings"
)

// eventStream is the state of a response of server-sent events.
type eventStream struct {
	on   bool // the response is a stream of events
	line bool // the bytes so far end with a whole line
}

// endsEvent reports whether b ends with the empty line that ends an event. Then b can be
// sent without a Flush, because no client acts on an event before its end. line reports
// whether the bytes before b ended a line. endsEvent sets it for b.
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
