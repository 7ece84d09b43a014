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
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/printable"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(pageCSS) }, //nolint:gosec // our own file
	"text":   printable.Lines,
	"bytes":  Bytes,
	"ago":    Ago,
	"stamp":  func(t time.Time) string { return t.Format(time.RFC3339) },
	"counts": counts,
	"mean":   Calls.mean,
	"join":   strings.Join,
}).Parse(pageHTML))

// contentSecurityPolicy lets a browser use the page's own style and nothing else: no
// script, image, frame or form.
var contentSecurityPolicy = fmt.Sprintf(
	"default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", digestOf(pageCSS))

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

const refreshSeconds = 5

type page struct {
	Status
	Refresh int // seconds; 0: no reload
}

// writePage sends the page. If refresh is set, the browser reloads it periodically.
func writePage(w http.ResponseWriter, s *snapshots, refresh bool) {
	p := page{Status: s.status()}
	if refresh {
		p.Refresh = refreshSeconds
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil { // cannot happen: the template matches Status
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "text/html; charset=utf-8", out.Bytes())
}

// counts formats the counts above zero by name, sorted by name: "a 1, b 2".
func counts(by map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if by[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", printable.Lines(name), by[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// mean returns the average duration of a call, or "" before the first.
func (c Calls) mean() string {
	n := total(c.Ended)
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
