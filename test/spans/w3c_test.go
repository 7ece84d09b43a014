package spans

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/serving"
)

// lines are header lines as they are sent, "Name: value" each.
type lines []string

// w3cRow is a rule of W3C Trace Context, which is sent over a socket byte by
// byte.
type w3cRow struct {
	name string
	sent lines
	// parent is the traceparent whose child the proxy span is to be, with the
	// flags that are to go out; empty for a new trace.
	parent string
	state  string // that is to go out
}

// sentParent is the parent that most rows send.
const sentParent = "traceparent: " + sampledParent

// w3cRows follow the W3C's own test suite, and add cases that it leaves open.
//
// Source: https://github.com/w3c/trace-context/blob/main/test/test.py
func w3cRows() []w3cRow {
	const id, span = parentTrace, parentSpan
	rows := []w3cRow{
		{"nothing", nil, "", ""},
		{"a parent", lines{sentParent}, sampledParent, ""},
		{"a parent and a state", lines{sentParent, "tracestate: foo=1,bar=2"}, sampledParent, "foo=1,bar=2"},
		{"a state without a parent", lines{"tracestate: foo=1"}, "", ""},

		{"header name of many cases", lines{"TrAcEpArEnT: " + sampledParent, "TRACESTATE: foo=1"}, sampledParent, "foo=1"},
		{"header name with a hyphen", lines{"trace-parent: " + sampledParent, "trace-state: foo=1"}, "", ""},
		{"white space around", lines{"traceparent: \t " + sampledParent + " \t", "tracestate: \t foo=1 \t"}, sampledParent, "foo=1"},

		{"two parents", lines{sentParent, "traceparent: 00-" + id + "-b7ad6b7169203332-01"}, "", ""},
		{"one parent twice", lines{sentParent, sentParent}, "", ""},

		{"flag 00", lines{"traceparent: " + unsampledParent, "tracestate: foo=1"}, unsampledParent, "foo=1"},
		{"random flag", lines{"traceparent: 00-" + id + "-" + span + "-03"}, "00-" + id + "-" + span + "-03", ""},
		{"random flag, unsampled", lines{"traceparent: 00-" + id + "-" + span + "-02"}, "00-" + id + "-" + span + "-02", ""},
		// Unknown flags are not passed on: https://www.w3.org/TR/trace-context-2/#other-flags
		{"flags of the future", lines{"traceparent: 00-" + id + "-" + span + "-ff"}, "00-" + id + "-" + span + "-03", ""},

		{"version cc", lines{"traceparent: cc-" + id + "-" + span + "-01"}, sampledParent, ""},
		{"version cc and more", lines{"traceparent: cc-" + id + "-" + span + "-01-what-the-future-will-be-like"}, sampledParent, ""},
		{"version cc and more, without a hyphen", lines{"traceparent: cc-" + id + "-" + span + "-01.what"}, "", ""},
		{"version fe", lines{"traceparent: fe-" + id + "-" + span + "-01"}, sampledParent, ""},
	}
	for name, value := range map[string]string{
		"empty":                        "",
		"words":                        "what ever",
		"a hyphen more":                sampledParent + "-",
		"a point more":                 sampledParent + ".",
		"a field more":                 sampledParent + "-what-the-future-will-be-like",
		"version ff":                   "ff-" + id + "-" + span + "-01",
		"version of a point":           ".0-" + id + "-" + span + "-01",
		"version in upper case":        "CC-" + id + "-" + span + "-01",
		"version of three digits":      "000-" + id + "-" + span + "-01",
		"version of one digit":         "0-" + id + "-" + span + "-01",
		"trace id of zeros":            "00-" + strings.Repeat("0", 32) + "-" + span + "-01",
		"trace id in upper case":       "00-" + strings.ToUpper(id) + "-" + span + "-01",
		"trace id with a point":        "00-." + id[1:] + "-" + span + "-01",
		"trace id too long":            "00-" + id + "00-" + span + "-01",
		"trace id too short":           "00-" + id[2:] + "-" + span + "-01",
		"parent id of zeros":           "00-" + id + "-" + strings.Repeat("0", 16) + "-01",
		"parent id in upper case":      "00-" + id + "-" + strings.ToUpper(span) + "-01",
		"parent id with a point":       "00-" + id + "-." + span[1:] + "-01",
		"parent id too long":           "00-" + id + "-" + span + "00-01",
		"parent id too short":          "00-" + id + "-" + span[2:] + "-01",
		"flags with a point":           "00-" + id + "-" + span + "-.0",
		"flags in upper case":          "00-" + id + "-" + span + "-0A",
		"flags of three digits":        "00-" + id + "-" + span + "-001",
		"flags of one digit":           "00-" + id + "-" + span + "-1",
		"no flags":                     "00-" + id + "-" + span,
		"two in one line":              sampledParent + "," + sampledParent,
		"spaces for hyphens":           strings.ReplaceAll(sampledParent, "-", " "),
		"a thousand characters":        sampledParent + strings.Repeat("0", 1000),
		"version cc, cut off":          "cc-" + id + "-" + span,
		"version cc, too long":         "cc-" + id + "-" + span + "-001",
		"a version and nothing but it": "00",
	} {
		rows = append(rows, w3cRow{"malformed: " + name, lines{"traceparent: " + value, "tracestate: foo=1"}, "", ""})
	}
	return append(rows, stateRows()...)
}

// stateRows are the cases of tracestate. An invalid state leaves the parent valid.
func stateRows() []w3cRow {
	var rows []w3cRow
	add := func(name, state string, sent ...string) {
		all := lines{sentParent}
		for _, s := range sent {
			all = append(all, "tracestate: "+s)
		}
		rows = append(rows, w3cRow{"state: " + name, all, sampledParent, state})
	}
	add("several lines", "foo=1,bar=2,rojo=1,congo=2,baz=3", "foo=1,bar=2", "rojo=1,congo=2", "baz=3")
	add("an empty line", "", "")
	add("an empty line before", "foo=1", "", "foo=1")
	add("an empty line after", "foo=1", "foo=1", "")
	add("white space", "foo=1,bar=2,baz=3", "foo=1 \t , \t bar=2, \t baz=3")
	add("every character of keys", "0123456789abcdefghijklmnopqrstuvwxyz_-*/@a-z0-9_-*/=1", "0123456789abcdefghijklmnopqrstuvwxyz_-*/@a-z0-9_-*/=1")
	add("characters of values", "foo=!\"#$%&'()*+-./09:;<>?@AZ[\\]^_`az{|}~", "foo=!\"#$%&'()*+-./09:;<>?@AZ[\\]^_`az{|}~")
	add("32 members", members(32), members(32))
	add("33 members", "", members(33))
	add("33 members in two lines", "", members(32), "more=1")
	add("a key of 256", strings.Repeat("z", 256)+"=1", strings.Repeat("z", 256)+"=1")
	add("a key of 257", "", strings.Repeat("z", 257)+"=1")
	add("a tenant of 241 and a system of 14", strings.Repeat("t", 241)+"@"+strings.Repeat("v", 14)+"=1",
		strings.Repeat("t", 241)+"@"+strings.Repeat("v", 14)+"=1")
	add("a tenant of 242", "", strings.Repeat("t", 242)+"@v=1")
	add("a system of 15", "", "t@"+strings.Repeat("v", 15)+"=1")
	add("a value of 256", "foo="+strings.Repeat("v", 256), "foo="+strings.Repeat("v", 256))
	add("a value of 257", "", "foo="+strings.Repeat("v", 257))
	add("more than 512 characters", long(8, 200), long(8, 200))
	for _, wrong := range []string{
		"foo =1", "FOO=1", "foo.bar=1", "foo@=1", "@foo=1", "foo@@bar=1", "foo@bar@baz=1", "foo=bar=baz", "foo", "=1", "foo=", "foo=1;bar=2,;",
	} {
		add("malformed: "+wrong, "", wrong)
	}
	add("one bad member among good ones", "", "good=1,bad,fine=2")
	add("one key twice", "", "foo=1,bar=2,foo=3")
	return rows
}

func members(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("k%d=%d", i, i))
	}
	return strings.Join(list, ",")
}

// long is n members whose values have this length.
func long(n, length int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("k%d=%s", i, strings.Repeat("v", length)))
	}
	return strings.Join(list, ",")
}

// passed are the headers that a handler would send on.
type passed struct{ Traceparent, Tracestate string }

// goesOut is a handler that answers with the context that it would send on.
func goesOut(r **rig) http.Handler {
	return serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
		out := http.Header{}
		(*r).tracing.Inject(req.Context(), out)
		return json.NewEncoder(w).Encode(passed{out.Get("Traceparent"), out.Get("Tracestate")})
	})
}

// raw sends a GET over a connection of its own, with header lines as they are,
// and gives the answer's body.
func (r *rig) raw(id string, header lines) string {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.server.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	all := append(lines{"GET / HTTP/1.1", "Host: x", "Connection: close", "X-Request-Id: " + id}, header...)
	if _, err := io.WriteString(conn, strings.Join(all, "\r\n")+"\r\n\r\n"); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("answer %s %q, %v", resp.Status, body, err)
	}
	_ = resp.Body.Close()
	return string(body)
}

// checkPassed compares the outgoing headers with a row: the caller's trace goes on, or a
// new one began, and the flags and the state are right.
func checkPassed(t *testing.T, row w3cRow, body string) {
	t.Helper()
	var out passed
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(out.Traceparent, "-"), strings.Split(row.parent, "-")
	if len(got) != 4 {
		t.Fatalf("traceparent %q goes out", out.Traceparent)
	}
	switch {
	case row.parent == "":
		if got[1] == parentTrace || got[3] != "01" && got[3] != "03" {
			t.Errorf("traceparent %q goes out, want that of a new, sampled trace", out.Traceparent)
		}
	case got[0] != "00" || got[1] != want[1] || got[3] != want[3]:
		t.Errorf("traceparent %q goes out, want the trace and the flags of %q", out.Traceparent, row.parent)
	}
	if out.Tracestate != row.state {
		t.Errorf("tracestate %q goes out, want %q", out.Tracestate, row.state)
	}
}

// TestW3COverHTTP: every rule, over a socket, on the caller's side and on the side
// of whom the handler calls.
func TestW3COverHTTP(t *testing.T) {
	var r *rig
	r = one(t, serving.Config{}, goesOut(&r))
	http2 := client(t, "HTTP/2")
	for i, row := range w3cRows() {
		t.Run(row.name, func(t *testing.T) {
			id := fmt.Sprintf("w3c-%d", i)
			checkPassed(t, row, r.raw(id, row.sent))
			r.checkHTTP(row, id)

			// HTTP/2 has names in small letters alone, and no space around values.
			var header []string
			for _, line := range row.sent {
				name, value, _ := strings.Cut(line, ":")
				header = append(header, strings.ToLower(name), strings.TrimSpace(value))
			}
			got := r.get(http2, id+"-http2", "/", header...)
			checkPassed(t, row, got.Body)
			r.checkHTTP(row, id+"-http2")
		})
	}
}

// unsampled: the caller's trace is not taken.
func (row w3cRow) unsampled() bool {
	return strings.HasSuffix(row.parent, "-00") || strings.HasSuffix(row.parent, "-02")
}

// checkHTTP holds the spans of a request against a row.
func (r *rig) checkHTTP(row w3cRow, id string) {
	r.t.Helper()
	if !row.unsampled() {
		r.checkParent(row, r.check(id, request(id).proxy(200, request(id).called(200))))
	}
}

// checkParent holds a recorded proxy span against a row.
func (r *rig) checkParent(row w3cRow, proxy sdktrace.ReadOnlySpan) {
	r.t.Helper()
	parent := proxy.Parent()
	if row.parent == "" {
		if parent.IsValid() {
			r.t.Errorf("%s: the proxy span has the parent %v, want none", row.name, parent)
		}
		return
	}
	if got := parent.TraceID().String() + "-" + parent.SpanID().String(); got != parentTrace+"-"+parentSpan || !parent.IsRemote() {
		r.t.Errorf("%s: the proxy span's parent is %s, remote %t", row.name, got, parent.IsRemote())
	}
	if got := parent.TraceState().String(); got != row.state {
		r.t.Errorf("%s: the proxy span's parent has the state %q, want %q", row.name, got, row.state)
	}
}
