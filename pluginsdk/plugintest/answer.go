package plugintest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// Answer is a plugin's answer to a batch, as a host understands it.
type Answer struct {
	// Code is the name of the gRPC code, in upper case: "OK", "UNAVAILABLE".
	Code string
	// Message is the plugin's text for a code other than OK, or for a partial success.
	Message string
	// Retryable reports whether a host would send the batch again. It is false for OK.
	Retryable bool
	// RetryAfter is the pause before the next attempt that the plugin asks for. Zero if it
	// asks for none.
	RetryAfter time.Duration
	// Rejected is the number of spans that the back end has refused for good, although the
	// plugin answered OK. It is zero for other codes.
	Rejected int
	// Filtered has the number of spans that each processor has dropped on purpose, by the
	// processor's name. Nil if there are none.
	Filtered map[string]int
	// Whole reports that a processor plugin has returned the whole batch. It is false if the
	// plugin has returned a patch, or nothing because the batch is unchanged.
	Whole bool
}

// Delivered reports whether the plugin answered OK. A host then counts all spans as
// delivered, except rejected and filtered spans.
func (a Answer) Delivered() bool { return a.Code == codeOK }

// String returns the answer in one line of text.
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

// answerFaults describes faults in the encoded parts of an answer. A field is empty if
// its part has no fault.
type answerFaults struct{ response, result, accounted, filtered string }

func answerOfError(err error) Answer {
	e := wire.FromStatus(err)
	return Answer{Code: e.Code, Message: e.Error(), Retryable: !e.Final, RetryAfter: e.After}
}

// parseExport parses the encoded response and the trailers of a call of Export that was
// answered with OK.
func parseExport(response []byte, trailer metadata.MD) (a Answer, faults answerFaults) {
	var msg coltracepb.ExportTraceServiceResponse
	if err := proto.Unmarshal(response, &msg); err != nil {
		faults.response = fmt.Sprintf("the OK answer is no ExportTraceServiceResponse: %v", err)
	}
	a = Answer{
		Code:     codeOK,
		Message:  msg.GetPartialSuccess().GetErrorMessage(),
		Rejected: int(msg.GetPartialSuccess().GetRejectedSpans()),
	}
	a.Filtered, faults.filtered = parseFiltered(trailer)
	return a, faults
}

// parseProcess parses the encoded response and the trailers of a call of Process that was
// answered with OK. encoded is the batch b. result is the encoded batch that a host would
// send to its exporters.
func parseProcess(b batch, encoded, response []byte, trailer metadata.MD) (a Answer, faults answerFaults, result []byte) {
	a.Code = codeOK
	a.Filtered, faults.filtered = parseFiltered(trailer)
	field, content, err := wire.ReadProcess(response, wire.ResponsePatch, wire.ResponseBatch)
	if err != nil {
		faults.response = fmt.Sprintf("the OK answer is no ProcessResponse: %v", err)
		return a, faults, encoded
	}
	switch field {
	case wire.ResponsePatch:
		if result, err = otlpwire.ApplyPatch(nil, encoded, content); err != nil {
			faults.result = fmt.Sprintf("the patch of a batch of %d bytes does not apply: %v", len(encoded), err)
			return a, faults, encoded
		}
	case wire.ResponseBatch:
		a.Whole, result = true, content
	default:
		return a, faults, encoded
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(result, &data); err != nil {
		faults.result = fmt.Sprintf("the result is no OTLP: %v", err)
		return a, faults, result
	}
	ids := spanIDs(data.GetResourceSpans())
	for _, id := range ids {
		if !slices.Contains(b.ids, id) {
			faults.result = fmt.Sprintf("the result has the span %s, which the batch had not: a processor may drop spans and must not add any", id)
		}
	}
	if missing := len(b.ids) - len(ids); missing != a.filtered() && faults.result == "" {
		faults.accounted = fmt.Sprintf("%d of %d spans are missing in the result, and the trailers %s count %d: name each processor that dropped spans", missing, len(b.ids), wire.MetaFiltered, a.filtered())
	}
	return a, faults, result
}

// parseFiltered returns the numbers of filtered spans in the trailers. fault describes a
// trailer that a host could not read; it is empty if there is none.
func parseFiltered(trailer metadata.MD) (filtered map[string]int, fault string) {
	counts, unread := wire.ReadFiltered(trailer.Get(wire.MetaFiltered))
	for processor, count := range counts {
		if !isProcessorName(processor) {
			unread = fmt.Sprintf("%s: processor %q: want a name of at most %d bytes, without spaces, commas and \"=\"", wire.MetaFiltered, wire.Clip(processor), longestName)
			continue
		}
		if filtered == nil {
			filtered = map[string]int{}
		}
		filtered[processor] = int(count)
	}
	if unread != "" {
		fault = "trailer " + unread
	}
	return filtered, fault
}

// longestName is the length in bytes of the longest name under which a host counts
// filtered spans.
const longestName = 64

// isProcessorName reports whether a host would count filtered spans under this name.
func isProcessorName(name string) bool {
	return name != "" && len(name) <= longestName && !strings.ContainsAny(name, " \t\n,=")
}

// filtered returns the sum of the numbers in Filtered.
func (a Answer) filtered() int {
	sum := 0
	for _, n := range a.Filtered {
		sum += n
	}
	return sum
}
