package waterfall

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/test/golden"
)

// evil is a text that would become markup.
const evil = "</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'`&\x00\x1b[2J\u202e\xff"

func evilTrace() Trace {
	s := aSpan(1, 0, evil, 0, 10, attribute.String(evil, evil))
	s.Service, s.Message, s.Code = evil, evil, 1
	s.Events = []Event{exception(5, evil, evil), {Name: evil}}
	s.Links = []Link{{s.Trace, spanID(1)}, {trace.TraceID{9}, spanID(1)}}
	return analysed(s)
}

var anyTag = regexp.MustCompile(`<[a-zA-Z!/][^ >\n]*`)

func page(traces ...Trace) string {
	var out bytes.Buffer
	WritePage(&out, "Traces of a&b.json", traces)
	return out.String()
}

func TestPage(t *testing.T) {
	request := aRequest()
	request[0].Links = []Link{{trace.TraceID{0xab, 15: 1}, spanID(3)}, {trace.TraceID{1}, spanID(9)}}
	got := page(analysed(request...))
	for _, want := range []string{
		"<title>Traces of a&amp;b.json</title>", "6 spans, 3 errors, shop, 100ms",
		"critical path: predict 69.6ms (69&nbsp;%)", `<p class="note">no child for 9.50ms at +79.0ms</p>`,
		`<p class="note error">the model is not to be found *model.Error</p>`,
		`<a href="#s-ab000000000000000000000000000001-0000000000000003">`, `id="s-ab000000000000000000000000000001-0000000000000003"`,
		`link to span 0000000000000009 of trace 01000000000000000000000000000000</p>`,
		"<dt>prompt</dt><dd>two words</dd>", "on the critical path for 69.6ms", "<details>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	if n := strings.Count(got, `href="#`); n != 1 {
		t.Errorf("%d links, want one to the span that is drawn", n)
	}
	if strings.Contains(got, "http://") || strings.Contains(got, "https://") || strings.Contains(got, "<script") || strings.Contains(got, "style=") {
		t.Error("the page needs more than itself")
	}
}

// TestTextsAreNoMarkup compares the tags of hostile spans with harmless ones.
func TestTextsAreNoMarkup(t *testing.T) {
	bad := page(evilTrace())
	if strings.ContainsAny(bad, "\x00\x1b\u202e") || strings.Contains(bad, "<img") || strings.Contains(bad, "<script") {
		t.Errorf("a text is markup, or invisible:\n%s", bad)
	}
	harmless := strings.NewReplacer(evil, "x")
	s := aSpan(1, 0, "x", 0, 10, attribute.String("x", "x"))
	s.Message, s.Code = harmless.Replace(evil), 1
	s.Events = []Event{exception(5, "x", "x"), {Name: "x"}}
	s.Links = []Link{{s.Trace, spanID(1)}, {trace.TraceID{9}, spanID(1)}}
	good := page(analysed(s))
	if b, g := anyTag.FindAllString(bad, -1), anyTag.FindAllString(good, -1); strings.Join(b, " ") != strings.Join(g, " ") {
		t.Errorf("tags of hostile texts:\n%v\nof harmless ones:\n%v", b, g)
	}
}

// TestWithoutValues: a page without values has nothing that may be a secret.
func TestWithoutValues(t *testing.T) {
	s := aSpan(1, 0, "root", 0, 10, attribute.String("key", "s3cret"))
	s.Code, s.Message = 1, "s3cret"
	s.Events = []Event{exception(5, "s3cret", "s3cret"), {Name: "s3cret"}}
	var out bytes.Buffer
	WriteTraces(&out, []Trace{analysed(s)}, false)
	if got := out.String(); strings.Contains(got, "s3cret") || !strings.Contains(got, "error:") || !strings.Contains(got, "root") {
		t.Errorf("without values:\n%s", got)
	}
}

func TestSVG(t *testing.T) {
	for name, traces := range map[string][]Trace{
		"request": {analysed(aRequest()...)}, "odd": {analysed(oddSpans()...), analysed(oddTexts()...)}, "evil": {evilTrace()},
	} {
		var out bytes.Buffer
		WriteSVG(&out, traces)
		if name == "request" {
			golden.Compare(t, "request.svg", out.String())
		}
		rects := 0
		for d := xml.NewDecoder(&out); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: not XML: %v", name, err)
			}
			if start, is := token.(xml.StartElement); is && start.Name.Local == "rect" {
				rects++
			} else if is && start.Name.Local == "script" {
				t.Errorf("%s: a script", name)
			}
		}
		if rects < 2 {
			t.Errorf("%s: %d rectangles", name, rects)
		}
	}
}
