package httpproxy

import (
	"net/http"
	"strings"
)

// modelIDHeaders are the spellings of Ray's header serve_multiplexed_model_id: in any case,
// and with "-" for some of the "_". They are in the form of keys of an http.Header.
var modelIDHeaders = func() (keys [8]string) {
	separators := [2]string{"_", "-"}
	for i := range keys {
		keys[i] = http.CanonicalHeaderKey("serve" + separators[i&1] + "multiplexed" + separators[i>>1&1] + "model" + separators[i>>2&1] + "id")
	}
	return keys
}()

// modelIDOf returns the id of the multiplexed model that a request names, or "". The last
// of several values of a header counts, as in Ray.
func modelIDOf(h http.Header) string {
	if !mayNameModel(h) {
		return ""
	}
	for _, key := range modelIDHeaders {
		if ids := h[key]; len(ids) > 0 {
			return strings.ToValidUTF8(ids[len(ids)-1], "\uFFFD") // spans contain the id
		}
	}
	return ""
}

// mayNameModel reports whether some header has the length of these spellings. This is
// cheaper than eight look-ups.
func mayNameModel(h http.Header) bool {
	for key := range h {
		if len(key) == len(modelIDHeaders[0]) {
			return true
		}
	}
	return false
}
