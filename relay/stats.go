package relay

import (
	"maps"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
)

// counts are the requests that were answered. Safe for concurrent use.
type counts struct {
	mu       sync.Mutex
	requests map[protocolAnswer]uint64
	spans    map[string]uint64 // by protocol
}

// protocolAnswer is the protocol of a request and the gRPC code of its answer.
type protocolAnswer struct{ protocol, answer string }

func newCounts() *counts {
	return &counts{requests: map[protocolAnswer]uint64{}, spans: map[string]uint64{}}
}

// addSpans counts spans that the host has taken.
func (c *counts) addSpans(protocol string, spans int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans[protocol] += uint64(spans) //nolint:gosec // a length
}

// addRequest counts a request that was answered with a gRPC code.
func (c *counts) addRequest(from *conn, answer codes.Code) {
	from.requests.Add(1)
	if answer == codes.ResourceExhausted {
		from.pushedBack.Add(1)
	}
	name, ok := code.Code_name[int32(answer)] //nolint:gosec // codes are small
	if !ok {
		name = code.Code_UNKNOWN.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[protocolAnswer{from.protocol, name}]++
}

// snapshot returns copies of the counts.
func (c *counts) snapshot() (requests map[protocolAnswer]uint64, spans map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.requests), maps.Clone(c.spans)
}
