package serving

import (
	"net/http"
	"strings"
)

// modelIDHeaders are Ray's serve_multiplexed_model_id in the forms in which a
// header may have it: case does not count, and each "_" may be a "-". They index
// an http.Header directly.
var modelIDHeaders = func() (keys [8]string) {
	separators := [2]string{"_", "-"}
	for i := range keys {
		keys[i] = http.CanonicalHeaderKey("serve" + separators[i&1] + "multiplexed" + separators[i>>1&1] + "model" + separators[i>>2&1] + "id")
	}
	return keys
}()

// modelIDOf gives the id of the multiplexed model that a request names; empty for
// none. Of several values of a header the last counts, as in Ray.
func modelIDOf(h http.Header) string {
	if !mayNameModel(h) {
		return ""
	}
	for _, key := range modelIDHeaders {
		if ids := h[key]; len(ids) > 0 {
			return strings.ToValidUTF8(ids[len(ids)-1], "\uFFFD") // it goes into spans
		}
	}
	return ""
}

// mayNameModel is cheaper than eight look-ups. All forms are equally long.
func mayNameModel(h http.Header) bool {
	for key := range h {
		if len(key) == len(modelIDHeaders[0]) && key[0] == modelIDHeaders[0][0] {
			return true
		}
	}
	return false
}
