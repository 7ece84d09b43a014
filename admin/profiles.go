package admin

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pathProfiles is where `go tool pprof` looks.
const pathProfiles = "/debug/pprof/"

// Durations of the profiles that take time, in seconds.
const (
	profileSeconds = 30
	mostSeconds    = 120
)

// serveProfile answers as net/http/pprof does. That package is not used: with
// it, each program that imports this one would have profiles on
// http.DefaultServeMux, asked for or not. The command line, which it tells too,
// may hold secrets and is left out.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, pathProfiles)
	switch name {
	case "":
		listProfiles(w)
		return
	case "profile":
		serveTimed(w, r, func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
		return
	case "trace":
		serveTimed(w, r, func() error { return trace.Start(w) }, trace.Stop)
		return
	}
	profile := pprof.Lookup(name)
	if profile == nil {
		http.Error(w, fmt.Sprintf("profile %.80q: there is none of that name; %s lists them", name, pathProfiles), http.StatusNotFound)
		return
	}
	debug, err := strconv.Atoi(r.FormValue("debug"))
	if err == nil && debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	_ = profile.WriteTo(w, debug) // fails only where the client has gone
}

// serveTimed runs a profile that takes time, until that is over or the client
// has gone. There can be one of a kind at a time in a process.
func serveTimed(w http.ResponseWriter, r *http.Request, start func() error, stop func()) {
	seconds := profileSeconds
	if text := r.FormValue("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostSeconds {
			http.Error(w, fmt.Sprintf("seconds=%.20q: want a whole number from 1 to %d", text, mostSeconds), http.StatusBadRequest)
			return
		}
		seconds = n
	}
	wait := time.Duration(seconds) * time.Second
	// The server's own bound is for answers that are ready; one that has no
	// deadlines needs none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + writeTimeout))
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(); err != nil {
		http.Error(w, fmt.Sprintf("%v: another profile of this kind is being taken; wait for its end", err), http.StatusConflict)
		return
	}
	defer stop()
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
	}
}

func listProfiles(w http.ResponseWriter) {
	names := []string{"profile", "trace"}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	write(w, "text/plain; charset=utf-8", []byte(strings.Join(names, "\n")+"\n"))
}
