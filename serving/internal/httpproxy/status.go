package httpproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// statusClientGone is nginx's status for a client that left before the response. It appears
// only in spans, metrics and logs.
const statusClientGone = 499

// statusOf translates an error that ended a request before its response began into the
// status of the client's response.
func statusOf(err error) int {
	switch {
	case errors.Is(err, cause.ErrRequestTimeout), errors.Is(err, cause.ErrClientStalled):
		return http.StatusRequestTimeout
	case errors.Is(err, cause.ErrClientGone):
		return statusClientGone
	case errors.Is(err, cause.ErrShuttingDown):
		return http.StatusServiceUnavailable
	}
	if full, is := errors.AsType[*cause.QueueFullError](err); is && full.StatusCode == http.StatusTooManyRequests {
		return full.StatusCode
	}
	if cause.IsRefusal(err) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// replicaStatus returns the status for the replica span: the status that the handler sent,
// or the status for its error err if it sent none. It returns 0 if the runtime ended the
// request before a response began, or the handler panicked with http.ErrAbortHandler.
func replicaStatus(sent int, err error) int {
	if sent != 0 || err == nil || cause.IsAbort(err) || cause.IsCancellation(err) {
		return sent
	}
	return statusOf(err)
}

// retryAfter returns the value of the header Retry-After in a response for err, in seconds.
// It returns "" if the response has no such header.
func retryAfter(err error) string {
	full, is := errors.AsType[*cause.QueueFullError](err)
	if !is || full.RetryAfter <= 0 {
		return ""
	}
	seconds := (full.RetryAfter + time.Second - 1) / time.Second // rounded up
	return strconv.FormatInt(int64(seconds), 10)
}

// text returns the body of a response that the proxy makes. It never contains the text of a
// handler's error, because clients must not see that text.
func (x *exchange) text(status int) string {
	if full, ok := errors.AsType[*cause.QueueFullError](x.err); ok {
		return full.Error()
	}
	if gone, ok := errors.AsType[*cause.DeploymentUnavailableError](x.err); ok {
		return gone.Error()
	}
	switch status {
	case http.StatusRequestTimeout:
		if errors.Is(x.err, cause.ErrClientStalled) {
			return fmt.Sprintf(textStalled, x.identity.ID, x.proxy.stall.Seconds())
		}
		return fmt.Sprintf(textTimeout, x.identity.ID, x.route.Timeout.Seconds())
	case http.StatusServiceUnavailable:
		if errors.Is(x.err, cause.ErrClientGone) {
			return fmt.Sprintf(textGone, x.identity.ID)
		}
		return textDraining
	}
	return http.StatusText(status)
}

// writeText responds with a status and a plain text. requestID may be empty.
func writeText(w http.ResponseWriter, status int, requestID, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(headerContentLength, strconv.Itoa(len(text)))
	if requestID != "" {
		h.Set(headerRequestID, requestID)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // fails only if the client has left
}
