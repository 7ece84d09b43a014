package semconv

import "strings"

// MethodOther stands where an HTTP verb would for one that is not known: the
// client chooses it, and names must stay few and short.
//
// Source: https://opentelemetry.io/docs/specs/semconv/registry/attributes/http/#http-request-method
const MethodOther = "_OTHER"

// Method gives the name under which spans and logs show an HTTP request's
// method: the verb in upper case if it is one of RFC 9110's or PATCH, else
// MethodOther.
func Method(verb string) string {
	const longest = len("CONNECT") // also of OPTIONS
	switch {
	case isMethod(verb): // nearly always
		return verb
	case len(verb) > longest:
		return MethodOther // before ToUpper, which would copy it
	}
	if upper := strings.ToUpper(verb); isMethod(upper) {
		return upper
	}
	return MethodOther
}

func isMethod(verb string) bool {
	switch verb {
	case "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE":
		return true
	}
	return false
}
