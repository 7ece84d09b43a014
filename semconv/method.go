package semconv

import "strings"

// MethodOther replaces an unknown HTTP verb. The client chooses the verb, and span
// names must stay few and short.
//
// Source:
// https://opentelemetry.io/docs/specs/semconv/registry/attributes/http/#http-request-method
const MethodOther = "_OTHER"

// Method returns the name of an HTTP request's method in spans and logs: the verb in
// upper case if RFC 9110 defines it or it is PATCH, else MethodOther.
func Method(verb string) string {
	const longest = len("CONNECT") // no known verb is longer
	switch {
	case isMethod(verb): // the usual case
		return verb
	case len(verb) > longest:
		return MethodOther // ToUpper would copy a long verb
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
