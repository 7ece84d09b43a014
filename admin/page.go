package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page's template and style
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/total"
	"github.com/servetrace/servetrace/internal/waterfall"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var style = waterfall.CSS + pageCSS

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(style) }, //nolint:gosec // our own files
	"short":  short,
	"text":   printable.Lines,
	"bytes":  Bytes,
	"ago":    Ago,
	"stamp":  func(t time.Time) string { return t.Format(time.RFC3339) },
	"counts": Counts,
	"mean":   Calls.mean,
	"join":   strings.Join,
}).Parse(pageHTML))

// contentSecurityPolicy lets a browser use the page's own style and nothing else: no
// script, image, frame or form.
var contentSecurityPolicy = fmt.Sprintf(
	"default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", digestOf(style))

// digestOf returns the SHA-256 of a text in base64, as a Content-Security-Policy has it.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

const refreshSeconds = 5

type page struct {
	Status
	Refresh int // seconds between two reloads, or 0 for no reload
	// Traces are the drawings of the last traces. It is empty if there are none, or if
	// ShowTraces is false.
	Traces     template.HTML
	ShowTraces bool
	past       history
}

// Rate returns the number of spans per second of a plugin, or "" if it is unknown.
func (p page) Rate(x Plugin) string { return p.past.rate(x, p.Time) }

// Spark returns HTML with the picture of a plugin's last five minutes, and a text below it.
func (p page) Spark(x Plugin) template.HTML {
	svg, text := p.past.spark(x.Name)
	if svg == "" {
		return ""
	}
	return template.HTML(svg + "<br>" + text) //nolint:gosec // made of numbers
}

// docs is the address of the pages that the status page links.
const docs = "https://github.com/servetrace/servetrace/blob/main/docs/"

// StateDocs returns the address of the page about the state of a plugin.
func (page) StateDocs(state string) string {
	address := docs + "reference/plugin-states.md"
	switch state {
	case "degraded", "backing-off", "broken", "incompatible", "untrusted":
		return address + "#" + state
	}
	return address + "#plugin-states-and-what-to-do"
}

// DeploymentDocs returns the address of the page about the states of deployments.
func (page) DeploymentDocs() string { return docs + "how-to/deployments.md" }

// short shortens a version that contains a time and a commit, such as a pseudo-version of Go.
func short(version string) string {
	if first, last := strings.Index(version, "-"), strings.LastIndex(version, "-"); first > 0 && len(version) > 24 {
		return version[:first] + "-…" + version[last:min(len(version), last+8)]
	}
	return version
}

// writePage sends the page. If refresh is set, the browser reloads it periodically.
func writePage(w http.ResponseWriter, s *snapshots, refresh bool) {
	p := page{Status: s.status(), past: s.history()}
	if recent := s.additions.traces.Load(); recent != nil {
		p.ShowTraces, p.Traces = true, drawTraces((*recent)())
	}
	if refresh {
		p.Refresh = refreshSeconds
		w.Header().Set("Refresh", strconv.Itoa(refreshSeconds))
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil { // cannot happen: the template matches Status
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "text/html; charset=utf-8", out.Bytes())
}

// Counts formats the counts above zero by name, sorted by name: "a 1, b 2".
func Counts(by map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if by[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", printable.Text(name), by[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// mean returns the average duration of a call, or "" before the end of the first call.
func (c Calls) mean() string {
	n := total.Of(c.Ended)
	if n == 0 {
		return ""
	}
	return time.Duration(c.Seconds / float64(n) * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// Bytes formats a number of bytes for people: "1.5 MiB".
func Bytes(n int64) string {
	size, unit := float64(n), ""
	for _, next := range []string{"KiB", "MiB", "GiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, next
	}
	if unit == "" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// Ago formats the time from t to now for people, in its two largest units: "3m20s",
// "5h2m". It returns "never" if t is zero.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := max(0, now.Sub(t))
	day := 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
