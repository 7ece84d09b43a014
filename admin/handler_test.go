package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/golden"
)

func TestContentNegotiation(t *testing.T) {
	const page, data = "text/html; charset=utf-8", "application/json"
	for _, c := range []struct{ target, accept, want string }{
		{"/-/tracing", "", page},
		{"/-/tracing", "*/*", page},
		{"/-/tracing", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", page},
		{"/-/tracing", "application/json", data},
		{"/-/tracing", "application/json, text/plain, */*", data},
		{"/-/tracing", "text/html;q=0.5, application/json;q=0.9", data},
		{"/-/tracing", "application/json;q=0.5, text/html", page},
		{"/-/tracing", "application/json;q=0, */*", page},
		{"/-/tracing", ";;;", page},
		{"/-/tracing?format=json", "text/html", data},
		{"/-/tracing?format=html", "application/json", page},
		{"/-/tracing.json", "text/html", data},
	} {
		w := serve(t, sample(), http.MethodGet, c.target, "Accept", c.accept)
		if got := w.Header().Get("Content-Type"); got != c.want || w.Code != http.StatusOK {
			t.Errorf("%s with Accept %q: %d %s, want 200 %s", c.target, c.accept, w.Code, got, c.want)
		}
	}
	if w := serve(t, sample(), http.MethodGet, "/-/tracing?format=yaml"); w.Code != http.StatusBadRequest ||
		w.Body.String() != "format=\"yaml\": want json or html\n" {
		t.Errorf("format=yaml: %d %q", w.Code, w.Body)
	}
}

func TestJSONForm(t *testing.T) {
	w := serve(t, sample(), http.MethodGet, "/-/tracing.json")
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	// Values that differ from run to run.
	at, err := time.Parse(time.RFC3339, got["time"].(string))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("time %v is not now: %v", got["time"], err)
	}
	process := got["process"].(map[string]any)
	if process["pid"] != float64(os.Getpid()) {
		t.Errorf("pid %v, want %d", process["pid"], os.Getpid())
	}
	got["time"] = "NOW"
	for key := range process {
		process[key] = "X"
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "status.json", string(text)+"\n")
}

func TestWithoutPlugins(t *testing.T) {
	w := serve(t, host.Stats{}, http.MethodGet, "/-/tracing.json")
	var status Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	if status.Plugins == nil || status.Spans.Refused == nil || status.BooksError != "" {
		t.Errorf("status %+v: want an empty list, an empty map and no error", status)
	}
	if w := serve(t, host.Stats{}, http.MethodGet, "/-/tracing"); !strings.Contains(w.Body.String(), "tracing is off") {
		t.Errorf("the page does not say that tracing is off:\n%s", w.Body)
	}
}

func TestStatusShowsUnbalancedSpans(t *testing.T) {
	stats := sample()
	stats.Ended++
	for _, target := range []string{"/-/tracing", "/-/tracing.json"} {
		if w := serve(t, stats, http.MethodGet, target); !strings.Contains(w.Body.String(), "111 spans ended, but 110 were refused or accepted") {
			t.Errorf("%s does not say so:\n%s", target, w.Body)
		}
	}
}

// The page shows all that the JSON form has.
func TestPageShowsEverything(t *testing.T) {
	body := serve(t, sample(), http.MethodGet, "/-/tracing").Body.String()
	for _, want := range []string{
		"queue_full 9, too_large 1", "1.0 MiB of 32.0 MiB", `<a class="state degraded" href="https://github.com/servetrace/servetrace/blob/main/docs/reference/plugin-states.md#degraded">degraded</a></td>`, ": 503 from the back end",
		"/opt/plugins/console", strings.Repeat("0a", 32), "<dd>4242</dd>", `<span title="1.2.3">1.2.3</span>, SDK servetrace-go 0.1 (go)`,
		"7, crashes 6, the last ", "<dt>UNAVAILABLE</dt><dd>21 calls, the last ", "SERVE_CONSOLE_OUTPUT, TERM",
		"INVALID_ARGUMENT 3, PARTIAL_SUCCESS 2", "filter 20", "max_age 4, shutdown 1", "20, in flight 8 in 2 calls, 4.0 KiB",
		"<dd>LOST 2, OK 7, 500ms each</dd>", `<dd class="error">1 batches</dd>`,
		"<dt>file</dt><dd>is not the one that runs any more", `<dd class="error">3 files of crashes`, "<dd>1234 lines of its output</dd>", `<td class="n error">10</td>`, "<dt>attached to</dt><dd>/run/otlp.sock</dd>", "<dd>never</dd>",
		"refreshes every 5 s",
		"<dd>processor, fails open</dd>", "<dt>of exporter</dt><dd>console</dd>", "<dt>passed</dt><dd>97</dd>", "timeout 7", "sampler 21", "rejected 2",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
	if still := serve(t, sample(), http.MethodGet, "/-/tracing?refresh=off").Body.String(); strings.Contains(still, "refreshes every") {
		t.Error("refresh=off is asked again")
	}
}

// evil is a hostile name of a plugin.
const evil = "</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'`&{{.}}\x00\x1b[2J\u202e\xff"

// No text of a plugin becomes markup of the page.
func TestPageEscapesPluginText(t *testing.T) {
	plain := sample()
	plain.Exporters[0].Function = "exporter:spans"
	stats := sample()
	x := &stats.Exporters[0]
	for _, text := range []*string{&x.Name, &x.Path, &x.Function, &x.Cause, &x.Version, &x.SDK, &x.LastError, &x.Digest} {
		*text = evil
	}
	x.Granted = []string{evil}
	x.Failures = []host.Failure{{Code: evil, Reason: evil, Calls: 21}, {Code: evil, Reason: evil, Calls: 1, Spans: 3}}
	x.Rejected, x.Filtered, x.Dropped = map[string]uint64{evil: 5}, map[string]uint64{evil: 20}, map[string]uint64{evil: 5}
	stats.Refused = map[string]uint64{evil: 10}

	body := serve(t, stats, http.MethodGet, "/-/tracing").Body.String()
	if strings.ContainsAny(body, "\x00\x1b\u202e") {
		t.Error("the page has characters that no one can see")
	}
	tags := regexp.MustCompile(`<[a-zA-Z!/][^ >]*`)
	want := tags.FindAllString(serve(t, plain, http.MethodGet, "/-/tracing").Body.String(), -1)
	if diff := cmp.Diff(want, tags.FindAllString(body, -1)); diff != "" {
		t.Errorf("tags (-without +with evil texts):\n%s", diff)
	}
	data := serve(t, stats, http.MethodGet, "/-/tracing.json").Body.String()
	if strings.Contains(data, "<") || !json.Valid([]byte(data)) {
		t.Errorf("JSON has tags, or is none:\n%s", data)
	}
}

// A browser takes the page's own style and nothing else.
func TestContentSecurityPolicyHasTheStyle(t *testing.T) {
	w := serve(t, sample(), http.MethodGet, "/-/tracing")
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(w.Body.String())
	if style == nil {
		t.Fatal("no style in the page")
	}
	want := "default-src 'none'; style-src 'sha256-" + digestOf(style[1]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if got := w.Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("policy %q, want %q", got, want)
	}
	if body := w.Body.String(); strings.Contains(body, "<script") || strings.Contains(body, "style=") || strings.Contains(strings.ReplaceAll(body, `href="`+docs, ""), "//") {
		t.Error("the page has a script, a style that the policy forbids, or a resource of somebody else's")
	}
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	for _, target := range []string{"/", "/-/tracing", "/-/tracing.json", "/metrics", "/-/healthz", "/nowhere"} {
		w := serve(t, sample(), http.MethodGet, target)
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store", "Content-Security-Policy": contentSecurityPolicy,
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", target, name, got, want)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodConnect, "FOO"} {
			w := serve(t, sample(), method, target)
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, target, w.Code, w.Header().Get("Allow"))
			}
		}
		if head := serve(t, sample(), http.MethodHead, target); head.Code != w.Code {
			t.Errorf("HEAD %s: %d, want %d as GET", target, head.Code, w.Code)
		}
	}
	if w := serve(t, sample(), http.MethodGet, "/-/healthz"); w.Body.String() != "ok\n" {
		t.Errorf("health: %q", w.Body)
	}
	if w := serve(t, sample(), http.MethodGet, "/"); w.Code != http.StatusFound || w.Header().Get("Location") != "/-/tracing" {
		t.Errorf("/: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if w := serve(t, sample(), http.MethodGet, "/debug/pprof/"); w.Code != http.StatusNotFound {
		t.Errorf("profiles that nobody asked for: %d", w.Code)
	}
}

// A page of another site cannot have its own name point here.
func TestForeignHostIsRefused(t *testing.T) {
	h := Handler(sample, WithHosts("Ops.Example."))
	for name, want := range map[string]int{
		"localhost": 200, "localhost:8001": 200, "LOCALHOST.:8001": 200, "127.0.0.1:8001": 200, "10.1.2.3": 200,
		"[::1]:8001": 200, "[::1]": 200, "[fe80::1%25eth0]:8001": 200, "ops.example:8001": 200, "OPS.EXAMPLE": 200, "": 200,
		"evil.example": 421, "evil.example:8001": 421, "127.0.0.1.evil.example:8001": 421, "localhost.evil.example": 421,
		"ops.example.evil": 421, "127.0.0.1:8001:evil": 421, "1.2.3.4, evil": 421, "[::1]evil:80": 421, ":8001": 200,
	} {
		if w := ask(h, http.MethodGet, "/-/tracing.json", "Host", name); w.Code != want {
			t.Errorf("host %q: %d, want %d", name, w.Code, want)
		}
	}
	w := ask(h, http.MethodGet, "/metrics", "Host", "evil.example")
	want := "host \"evil.example\" is not a name of this listener: use its IP address or localhost, or set SERVE_ADMIN_HOST to the name\n"
	if got := w.Body.String(); got != want {
		t.Errorf("refusal %q, want %q", got, want)
	}
}

// For any number of requests, the statistics are read at most fifty times a second.
func TestRequestsShareSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		h := Handler(func() host.Stats { taken++; return sample() })
		for i := range 100 {
			ask(h, http.MethodGet, []string{"/-/tracing", "/metrics", "/-/tracing.json"}[i%3])
		}
		if taken != 1 {
			t.Errorf("100 requests at once read the statistics %d times, want once", taken)
		}
		time.Sleep(freshFor)
		ask(h, http.MethodGet, "/metrics")
		if taken != 2 {
			t.Errorf("after a while they were taken %d times, want twice", taken)
		}
	})
}

func TestAgoAndBytes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, d := range map[string]time.Duration{
		"0s": -time.Hour, "59s": 59 * time.Second, "3m20s": 200 * time.Second, "5h2m": 5*time.Hour + 2*time.Minute, "3d4h": 76 * time.Hour,
	} {
		if got := Ago(now, now.Add(-d)); got != want {
			t.Errorf("%v ago: %q, want %q", d, got, want)
		}
	}
	if got := Ago(now, time.Time{}); got != "never" {
		t.Errorf("the zero time: %q", got)
	}
	for want, n := range map[string]int64{"0 B": 0, "1023 B": 1023, "1.5 KiB": 1536, "32.0 MiB": 32 << 20, "4096.0 GiB": 4 << 40} {
		if got := Bytes(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}

// A host's method Stats is all that a program hands over.
func ExampleHandler() {
	plugins, err := host.New(host.Config{Plugins: "unix:///run/traces.sock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux() // the program's own, for operators
	mux.Handle("/", Handler(plugins.Stats))

	r := &http.Request{Method: http.MethodGet, Host: "localhost", URL: &url.URL{Path: "/-/healthz"}, Header: http.Header{}}
	w := printer{http.Header{}}
	mux.ServeHTTP(w, r)
	// Output: ok
}

// printer writes an answer to standard output.
type printer struct{ header http.Header }

func (p printer) Header() http.Header            { return p.header }
func (p printer) WriteHeader(int)                {}
func (p printer) Write(text []byte) (int, error) { return fmt.Print(string(text)) }
