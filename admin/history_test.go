package admin

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
)

// TestHistory: five minutes of samples give a rate and a picture, and no more is kept.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := uint64(0)
		lost := map[string]uint64{"max_age": 0}
		s := &snapshots{additions: &additions{}, read: func() host.Stats {
			return host.Stats{Exporters: []host.ExporterStats{{Name: "x", Delivered: done, Dropped: lost}}}
		}}
		x := func() Plugin { _, _ = s.stats(); return s.status().Plugins[0] }
		if got := s.history().rate(x(), time.Now()); got != "" {
			t.Errorf("rate %q before ten seconds", got)
		}
		for range 100 {
			<-time.After(sampleEvery)
			done += 60
			s.stats()
		}
		h := s.history()
		if got := h.rate(x(), time.Now()); got != "12" {
			t.Errorf("rate %q, want 12", got)
		}
		if len(h) != 61 {
			t.Errorf("%d samples, want 61", len(h))
		}
		if svg, text := h.spark("x"); text != "at most 12 spans per second" || strings.Count(svg, `class="busy"`) != 60 {
			t.Errorf("picture %s (%s)", svg, text)
		}
		<-time.After(sampleEvery)
		lost = map[string]uint64{"max_age": 7}
		s.stats()
		if svg, text := s.history().spark("x"); !strings.HasSuffix(text, ", 7 lost") || strings.Count(svg, `class="lost"`) != 1 {
			t.Errorf("picture %s (%s)", svg, text)
		}
	})
}

// TestLastTraces: the page shows the newest traces by their names, and no value.
func TestLastTraces(t *testing.T) {
	var requests [][]byte
	for i := range byte(30) {
		s3cret := &commonpb.KeyValue{Key: "key", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "s3cret"}}}
		data, err := proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
			ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{
				TraceId: []byte{15: i + 1}, SpanId: []byte{7: 1}, Name: "root-" + string(rune('A'+i)) + "<b>", Attributes: []*commonpb.KeyValue{s3cret},
				StartTimeUnixNano: 1e18 + uint64(i)*1e9, EndTimeUnixNano: 1e18 + uint64(i)*1e9 + 5e6,
				Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "s3cret"},
			}}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, data)
	}
	s := startServer(t, sample)
	s.ShowTraces(func() [][]byte { return requests })
	status, body := fetch(t, s.URL())
	if status != http.StatusOK || strings.Count(body, `<section class="trace">`) != shownTraces || strings.Contains(body, "s3cret") {
		t.Errorf("status %d, body:\n%s", status, body)
	}
	newest, older := strings.Index(body, "trace 0000000000000000000000000000001e"), strings.Index(body, "trace 00000000000000000000000000000015")
	if newest < 0 || older < newest || strings.Contains(body, "trace 00000000000000000000000000000014<") {
		t.Errorf("the newest trace is at %d, the tenth at %d", newest, older)
	}
	requests = nil
	if _, body := fetch(t, s.URL()); !strings.Contains(body, "There are none yet.") {
		t.Error("without traces the page does not say so")
	}
}

// TestStatesAreDocumented: the address for each state is a page with this heading.
func TestStatesAreDocumented(t *testing.T) {
	for _, state := range states {
		file, heading, _ := strings.Cut(strings.TrimPrefix(page{}.StateDocs(state.String()), docs), "#")
		text, err := os.ReadFile(filepath.Join("../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		title := "\n## " + heading + "\n"
		if heading == "plugin-states-and-what-to-do" {
			title = "# Plugin states and what to do\n"
		}
		if !strings.Contains(string(text), title) || !strings.Contains(string(text), "| `"+state.String()+"` |") {
			t.Errorf("%s has no heading %q, or no row for %v", file, title, state)
		}
	}
	if _, err := os.Stat(filepath.Join("../docs", strings.TrimPrefix(page{}.DeploymentDocs(), docs))); err != nil {
		t.Error(err)
	}
}
