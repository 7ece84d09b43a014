package admin

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestProfiles(t *testing.T) {
	h := Handler(sample, WithProfiles())
	if list := ask(h, http.MethodGet, "/debug/pprof/").Body.String(); !strings.Contains(list, "goroutine\n") || !strings.Contains(list, "profile\n") {
		t.Errorf("list %q", list)
	}
	w := ask(h, http.MethodGet, "/debug/pprof/heap")
	zipped, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatalf("heap: %d, %v", w.Code, err)
	}
	if text, err := io.ReadAll(zipped); err != nil || len(text) == 0 {
		t.Errorf("heap: %d bytes, %v", len(text), err)
	}
	if text := ask(h, http.MethodGet, "/debug/pprof/goroutine?debug=1").Body.String(); !strings.HasPrefix(text, "goroutine profile: total") {
		t.Errorf("goroutine: %q", text)
	}
	for target, want := range map[string]int{
		"/debug/pprof/nothing": 404, "/debug/pprof/cmdline": 404, "/debug/pprof/profile?seconds=0": 400,
		"/debug/pprof/profile?seconds=121": 400, "/debug/pprof/trace?seconds=many": 400,
	} {
		if w := ask(h, http.MethodGet, target); w.Code != want {
			t.Errorf("%s: %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
}

// A program that imports this package has no profiles on the default mux.
func TestNoProfilesOnTheDefaultMux(t *testing.T) {
	if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest(http.MethodGet, "/debug/pprof/", http.NoBody)); pattern != "" {
		t.Errorf("there is %q on http.DefaultServeMux", pattern)
	}
}

// pprof can read a profile of the processor. Only one is recorded at a time.
func TestTimedProfiles(t *testing.T) {
	srv := httptest.NewServer(Handler(sample, WithProfiles()))
	defer srv.Close()
	for _, kind := range []string{"profile", "trace"} {
		type result struct {
			status int
			body   []byte
		}
		results := make(chan result, 2)
		for range 2 {
			go func() { // ends with the profile, in a second
				resp, err := http.Get(srv.URL + "/debug/pprof/" + kind + "?seconds=1")
				if err != nil {
					t.Error(err)
					results <- result{}
					return
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				results <- result{resp.StatusCode, body}
			}()
		}
		first, second := <-results, <-results
		if first.status == http.StatusOK && second.status != http.StatusOK {
			first, second = second, first
		}
		if second.status != http.StatusOK || len(second.body) == 0 || bytes.HasPrefix(second.body, []byte("<")) {
			t.Errorf("%s: %d with %d bytes", kind, second.status, len(second.body))
		}
		// Unless the machine was so slow that they followed each other.
		if first.status == http.StatusConflict && !bytes.Contains(first.body, []byte("another profile of this kind is being recorded")) {
			t.Errorf("%s beside another: %q", kind, first.body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
