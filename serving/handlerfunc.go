package serving

import (
	"log/slog"
	"net/http"

	"github.com/servetrace/servetrace/serving/internal/httpproxy"
)

// HandlerFunc is an [http.Handler] that can fail. The client gets status 500 for its
// error (503 for a [*QueueFullError]) and not its text; the text is in span and log. If
// the response had begun, the connection is cut, so that the client does not take the
// beginning for the whole response.
//
// It works at any depth below a deployment's handler, behind a ServeMux or
// middleware. Elsewhere it responds with 500 and logs the error to [slog.Default].
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements [http.Handler].
func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f(w, r)
	if err == nil || httpproxy.Fail(r.Context(), err) {
		return
	}
	slog.ErrorContext(r.Context(), "handler failed outside of a replica", "error", err)
	http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}
