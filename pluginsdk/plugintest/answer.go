package plugintest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// Answer is what a plugin says to a batch, as a host reads it.
type Answer struct {
	// Code is the gRPC code as OTLP writes it: "OK", "UNAVAILABLE".
	Code string
	// Message is the plugin's text to a code other than OK, or to a partial
	// success.
	Message string
	// Retryable: a host sends the batch again. Never with OK.
	Retryable bool
	// RetryAfter is how long the back end wants to be left alone; zero where it
	// did not say.
	RetryAfter time.Duration
	// Rejected are the spans of an OK batch that the back end refused for good.
	Rejected int
	// Filtered are those that processors dropped on purpose, by processor. Nil
	// where there are none.
	Filtered map[string]int
}

// Delivered tells whether the plugin answered OK: a host then counts as
// delivered all spans but those rejected and filtered.
func (a Answer) Delivered() bool { return a.Code == codeOK }

// String is the answer in a line.
func (a Answer) String() string {
	var b strings.Builder
	b.WriteString(a.Code)
	if a.Message != "" {
		fmt.Fprintf(&b, " (%q)", a.Message)
	}
	if a.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %v", a.RetryAfter)
	}
	if a.Rejected != 0 {
		fmt.Fprintf(&b, ", %d rejected", a.Rejected)
	}
	if len(a.Filtered) > 0 {
		fmt.Fprintf(&b, ", filtered %v", a.Filtered)
	}
	return b.String()
}

const codeOK = "OK"

// parseAnswer reads what a call gave. faults are what of it makes no sense.
func parseAnswer(response []byte, trailer metadata.MD, callErr error) (a Answer, faults []string) {
	if e := wire.FromStatus(callErr); e != nil {
		return Answer{Code: e.Code, Message: e.Error(), Retryable: !e.Final, RetryAfter: e.After}, nil
	}
	a.Code = codeOK
	var msg coltracepb.ExportTraceServiceResponse
	if err := proto.Unmarshal(response, &msg); err != nil {
		faults = append(faults, fmt.Sprintf("the OK answer is no ExportTraceServiceResponse: %v", err))
	}
	a.Message = msg.GetPartialSuccess().GetErrorMessage()
	a.Rejected = int(msg.GetPartialSuccess().GetRejectedSpans())
	for _, value := range trailer.Get(wire.MetaFiltered) {
		processor, text, _ := strings.Cut(value, "=")
		count, err := strconv.ParseUint(text, 10, 31)
		if err != nil || !wellNamed(processor) {
			faults = append(faults, fmt.Sprintf("trailer %s: %q: want PROCESSOR=COUNT, the name without spaces, commas and \"=\"", wire.MetaFiltered, value))
			continue
		}
		if a.Filtered == nil {
			a.Filtered = map[string]int{}
		}
		a.Filtered[processor] += int(count)
	}
	return a, faults
}

// wellNamed tells whether the books can carry a processor's name.
func wellNamed(processor string) bool {
	const most = 64 // beyond, a host counts it among others
	return processor != "" && len(processor) <= most && !strings.ContainsAny(processor, " \t\n,=")
}

// filtered adds up what processors dropped.
func (a Answer) filtered() int {
	sum := 0
	for _, n := range a.Filtered {
		sum += n
	}
	return sum
}

// watch is what all rules saw of a plugin's answers to Export. Safe for
// concurrent use; the zero value has seen nothing.
type watch struct {
	mu sync.Mutex
	// answers, partials and filters count the answers, those with a partial
	// success and those with filtered spans.
	answers, partials, filters int
	// diagnostics counts the remarks on configurations.
	diagnostics int
	// The faults of each kind, each text once.
	unread, partialFaults, filterFaults, diagnosticFaults faults
}

// faults are texts, each once, of which the first are kept.
type faults []string

const mostFaults = 5

func (f *faults) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, known := range *f {
		if known == text {
			return
		}
	}
	if len(*f) < mostFaults {
		*f = append(*f, text)
	}
}

// err is all of them, nil if there are none.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(f, "\n"))
}

// see books an answer to a batch of so many spans.
func (w *watch) see(spans int, a Answer, trouble []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers++
	for _, text := range trouble {
		if strings.HasPrefix(text, "trailer") {
			w.filters++
			w.filterFaults.add("%s", text)
		} else {
			w.unread.add("%s", text)
		}
	}
	if a.Rejected != 0 || a.Delivered() && a.Message != "" {
		w.partials++
		if a.Rejected < 0 || a.Rejected > spans {
			w.partialFaults.add("%d rejected spans of a batch of %d: want 0 to %d", a.Rejected, spans, spans)
		}
	}
	if dropped := a.filtered(); dropped > 0 {
		w.filters++
		if dropped > spans {
			w.filterFaults.add("%d filtered spans (%v) of a batch of %d", dropped, a.Filtered, spans)
		} else if dropped+max(0, a.Rejected) > spans {
			w.filterFaults.add("%d filtered and %d rejected spans of a batch of %d: a span is one of both", dropped, a.Rejected, spans)
		}
	}
}

// seeDiagnostics books the remarks on a configuration.
func (w *watch) seeDiagnostics(list []*pluginv1.Diagnostic) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diagnostics += len(list)
	for _, d := range list {
		switch d.GetSeverity() {
		case pluginv1.Severity_SEVERITY_WARNING, pluginv1.Severity_SEVERITY_ERROR:
		default:
			w.diagnosticFaults.add("severity is %v (%q); want WARNING or ERROR", d.GetSeverity(), clip(d.GetText()))
		}
		if strings.TrimSpace(d.GetText()) == "" {
			w.diagnosticFaults.add("a diagnostic about %q has no text; say what is wrong, the value seen, and what to do", clip(d.GetPath()))
		}
	}
}
