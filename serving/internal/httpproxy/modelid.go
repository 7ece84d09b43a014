package httpproxy

import (
	"net/http"
	"strings"
)

// modelIDHeaders are the spellings of Ray's header serve_multiplexed_model_id, in which each
// "_" may be a "-". They have the canonical form of keys of an http.Header.
var modelIDHeaders = func() (keys [8]string) {
	separators := [2]string{"_", "-"}
	for i := range keys {
		keys[i] = http.CanonicalHeaderKey("serve" + separators[i&1] + "multiplexed" + separators[i>>1&1] + "model" + separators[i>>2&1] + "id")
	}
	return keys
}()

// modelIDOf returns the id of the multiplexed model that the headers of a request name, or
// "". If a header has several values, the last value counts, as in Ray.
func modelIDOf(h http.Header) string {
	if !mayNameModel(h) {
		return ""
	}
	for _, key := range modelIDHeaders {
		if ids := h[key]; len(ids) > 0 {
			return strings.ToValidUTF8(ids[len(ids)-1], "\uFFFD") // an attribute of a span must be valid UTF-8
		}
	}
	return ""
}

// mayNameModel reports whether a header has the length of the modelIDHeaders, which all have
// the same length. For most requests this saves eight look-ups.
func mayNameModel(h http.Header) bool {
	for key := range h {
		if len(key) == len(modelIDHeaders[0]) {
			return true
		}
	}
	return false
}
