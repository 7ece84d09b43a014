package progress

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLines: without a terminal there is a line every five seconds, and none after the end.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := Start(&out, "build peers", 0)
		<-time.After(6 * time.Second)
		r.At("collector", 1, 4)
		<-time.After(5 * time.Second)
		r.At("agent", 4, 4)
		<-time.After(5 * time.Second)
		r.End()
		<-time.After(time.Minute)
		want := "build peers: 5s\nbuild peers: collector: 1 of 4, 10s, about 30s left\nbuild peers: agent: 4 of 4, 15s\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// TestLimit: a run with a limit reports the limit.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := Start(&out, "start the plugins", 30*time.Second)
		<-time.After(11 * time.Second)
		r.End()
		if want := "start the plugins: 5s of at most 30s\nstart the plugins: 10s of at most 30s\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// TestShortRun: a run of less than five seconds reports nothing.
func TestShortRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := Start(&out, "short", 0)
		<-time.After(4 * time.Second)
		r.End()
		if out.Len() > 0 {
			t.Errorf("%q, want nothing", out.String())
		}
	})
}

// TestTerminal: a terminal has one line, which is cleared for other lines and at the end.
func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := &Report{w: &out, terminal: true, what: "run", began: time.Now(), ended: make(chan struct{})}
		r.reported.Go(r.run)
		<-time.After(2100 * time.Millisecond)
		if _, err := r.Write([]byte("a log line\r\n")); err != nil {
			t.Error(err)
		}
		<-time.After(500 * time.Millisecond)
		r.End()
		if got := out.String(); !strings.Contains(got, "2s\r\x1b[Ka log line\r\n\r\x1b[Krun: 3s") || strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "\r\x1b[Krun: 2s") || !strings.HasSuffix(got, "\r\x1b[K") {
			t.Errorf("%q", got)
		}
	})
	null, err := os.Open("/dev/ptmx")
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer null.Close()
	if !IsTerminal(null) || IsTerminal(new(bytes.Buffer)) {
		t.Error("a terminal is not distinguished from a buffer")
	}
}
