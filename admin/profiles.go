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

// pathProfiles is the path that `go tool pprof` requests.
const pathProfiles = "/debug/pprof/"

// Duration of a CPU profile or an execution trace in seconds: the default, and the largest
// allowed value.
const (
	profileSeconds    = 30
	maxProfileSeconds = 120
)

// serveProfile answers like net/http/pprof. This package does not import net/http/pprof, which
// would add profiles to http.DefaultServeMux in every program. serveProfile does not serve the
// command line, because it may hold secrets.
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
		http.Error(w, fmt.Sprintf("profile %.80q is unknown: see the list at %s", name, pathProfiles), http.StatusNotFound)
		return
	}
	debug, err := strconv.Atoi(r.FormValue("debug"))
	if err == nil && debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	_ = profile.WriteTo(w, debug) // fails only if the client has disconnected
}

// serveTimed records a profile for the requested duration, or until the client
// disconnects. A process can record one profile of a kind at a time.
func serveTimed(w http.ResponseWriter, r *http.Request, start func() error, stop func()) {
	seconds := profileSeconds
	if text := r.FormValue("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxProfileSeconds {
			http.Error(w, fmt.Sprintf("seconds=%.20q: want a whole number from 1 to %d", text, maxProfileSeconds), http.StatusBadRequest)
			return
		}
		seconds = n
	}
	wait := time.Duration(seconds) * time.Second
	// The server's write timeout is too short for a profile. The error is ignored, because it
	// only means that the server has no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + writeTimeout))
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(); err != nil {
		http.Error(w, fmt.Sprintf("%v: another profile of this kind is being recorded; try again when it has ended", err), http.StatusConflict)
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
