package serving

import (
	"encoding/binary"
	"math/rand/v2"
	"net/http"
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
	return newRequestID()
}

// fitRequestID gives the client's id, or a fresh one if that is not fit.
func fitRequestID(id string) string {
	if validRequestID(id) {
		return id
	}
	return newRequestID()
}

// newRequestID draws a UUIDv4. It is a name and no secret, so that the fast
// generator will do.
//
// Source: https://www.rfc-editor.org/rfc/rfc9562#section-5.4
func newRequestID() string {
	var id [16]byte
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // the RFC's variant
	const digits = "0123456789abcdef"
	text := [36]byte{8: '-', 13: '-', 18: '-', 23: '-'}
	at := 0
	for _, b := range id {
		if text[at] == '-' {
			at++
		}
		text[at], text[at+1] = digits[b>>4], digits[b&0x0f]
		at += 2
	}
	return string(text[:])
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
