package plugintest

import (
	"fmt"
	"strings"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/wire"
)

// Answer is a plugin's answer to a batch, as a host reads it.
type Answer struct {
	// Code is the gRPC code in OTLP's spelling: "OK", "UNAVAILABLE".
	Code string
	// Message is the plugin's text for a code other than OK, or for a partial success.
	Message string
	// Retryable reports that a host sends the batch again. It is false for OK.
	Retryable bool
	// RetryAfter is the pause that the back end asked for. Zero if it did not ask.
	RetryAfter time.Duration
	// Rejected is the number of spans of an OK batch that the back end refused for good.
	Rejected int
	// Filtered is the number of spans that each processor dropped on purpose, by
	// processor. Nil if there are none.
	Filtered map[string]int
}

// Delivered reports whether the plugin answered OK. A host then counts all spans as
// delivered, except rejected and filtered spans.
func (a Answer) Delivered() bool { return a.Code == codeOK }

// String returns the answer in a line.
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

// answerFaults describes the parts of an answer that cannot be read. Each is empty if
// its part is fine.
type answerFaults struct{ response, filtered string }

func parseAnswer(response []byte, trailer metadata.MD, callErr error) (a Answer, faults answerFaults) {
	if e := wire.FromStatus(callErr); e != nil {
		return Answer{Code: e.Code, Message: e.Error(), Retryable: !e.Final, RetryAfter: e.After}, faults
	}
	var msg coltracepb.ExportTraceServiceResponse
	if err := proto.Unmarshal(response, &msg); err != nil {
		faults.response = fmt.Sprintf("the OK answer is no ExportTraceServiceResponse: %v", err)
	}
	a = Answer{
		Code:     codeOK,
		Message:  msg.GetPartialSuccess().GetErrorMessage(),
		Rejected: int(msg.GetPartialSuccess().GetRejectedSpans()),
	}
	counts, unread := wire.ReadFiltered(trailer.Get(wire.MetaFiltered))
	for processor, count := range counts {
		if !isProcessorName(processor) {
			unread = fmt.Sprintf("%s: processor %q: want a name of at most %d bytes, without spaces, commas and \"=\"", wire.MetaFiltered, wire.Clip(processor), longestName)
			continue
		}
		if a.Filtered == nil {
			a.Filtered = map[string]int{}
		}
		a.Filtered[processor] = int(count)
	}
	if unread != "" {
		faults.filtered = "trailer " + unread
	}
	return a, faults
}

// longestName is the longest name under which a host counts filtered spans.
const longestName = 64

// isProcessorName reports whether a host counts spans under the name.
func isProcessorName(name string) bool {
	return name != "" && len(name) <= longestName && !strings.ContainsAny(name, " \t\n,=")
}

// filtered returns the number of spans that processors dropped.
func (a Answer) filtered() int {
	sum := 0
	for _, n := range a.Filtered {
		sum += n
	}
	return sum
}
