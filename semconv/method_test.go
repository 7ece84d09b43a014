package semconv

import "testing"

func TestMethod(t *testing.T) {
	for verb, want := range map[string]string{
		"GET": "GET", "post": "POST", "Options": "OPTIONS", "PATCH": "PATCH",
		"": "_OTHER", "PROPFIND": "_OTHER", "WS": "_OTHER", "BREW": "_OTHER",
	} {
		if got := Method(verb); got != want {
			t.Errorf("Method(%q) is %q, want %q", verb, got, want)
		}
	}
}
