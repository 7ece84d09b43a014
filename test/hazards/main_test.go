package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	events := strings.Join([]string{
		`{"Action":"start","Package":"p"}`,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"well\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestBad/part"}`,
		`{"Action":"output","Package":"p","Test":"TestBad/part","Output":"why\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":1.25}`,
		`{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":0.5}`,
		`{"Action":"skip","Package":"p","Test":"TestElsewhere"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\n"}`,
		`{"Action":"fail","Package":"p","Elapsed":2}`,
	}, "\n")
	results := map[string]event{}
	printed, err := read([]byte(events), "dir", results)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for at, e := range results {
		got[at] = e.String()
	}
	want := map[string]string{
		"dir TestGood": "pass (1.2 s)", "dir TestBad": "fail (0.5 s)", "dir TestElsewhere": "skip",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if string(printed) != "why\nFAIL\n" {
		t.Errorf("printed %q", printed)
	}
	if _, err := read([]byte("not JSON"), "dir", results); err == nil {
		t.Error("no error of what is no event")
	}
}
