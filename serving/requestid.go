package serving

import (
	"net/http"

	"github.com/google/uuid"
)

// headerRequestID carries a request's identity both ways. It is in canonical
// form, so that it indexes an http.Header directly.
const headerRequestID = "X-Request-Id"

// maxRequestIDLen bounds what a client may have us repeat in every span and log
// line. A UUID has 36 characters, the longest ids in common use about 100.
const maxRequestIDLen = 128

// requestID gives the client's X-Request-ID if it is fit to be repeated in
// headers, logs and file names, else a fresh UUIDv4. Of several, the first counts.
func requestID(h http.Header) string {
	if ids := h[headerRequestID]; len(ids) > 0 {
		return fitRequestID(ids[0])
	}
	return uuid.NewString()
}

// fitRequestID gives the client's id, or a fresh one if that is not fit.
func fitRequestID(id string) string {
	if validRequestID(id) {
		return id
	}
	return uuid.NewString()
}

// validRequestID allows the characters of UUIDs, ULIDs, base64 and the ids of
// the common load balancers (Root=1-67891233-abcdef012345678912345678).
// Anything that could end a header, a quoted string or a list is out.
func validRequestID(id string) bool {
	if len(id) == 0 || len(id) > maxRequestIDLen {
		return false
	}
	for i := range len(id) {
		if !requestIDChar(id[i]) {
			return false
		}
	}
	return true
}

func requestIDChar(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '-', '_', '.', '~', ':', '/', '+', '=', '@', ';', '|', '#':
		return true
	}
	return false
}
