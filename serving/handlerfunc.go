package serving

import (
	"log/slog"
	"net/http"

	"github.com/servetrace/servetrace/serving/internal/httpproxy"
)

// HandlerFunc is an [http.Handler] that can return an error. The client then gets status
// 500, or 503 for a [*QueueFullError]. The text of the error is in span and log, and the
// client does not get it. If the response has begun, the connection is cut, so that the
// client does not take the beginning for the whole response.
//
// A deployment's handler may call a HandlerFunc through a ServeMux or middleware. Outside of
// a deployment, it responds with 500 and logs the error to [slog.Default].
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
