package relay

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"

	"github.com/servetrace/servetrace/admin"
)

// counts are the requests that were answered. Safe for concurrent use.
type counts struct {
	mu       sync.Mutex
	requests map[string]map[string]uint64 // by protocol and gRPC code
	spans    map[string]uint64            // by protocol
}

func newCounts() *counts {
	return &counts{requests: map[string]map[string]uint64{}, spans: map[string]uint64{}}
}

// addSpans counts spans that the host has taken.
func (c *counts) addSpans(from *conn, spans int) {
	from.spans.Add(uint64(spans)) //nolint:gosec // a length
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans[from.protocol] += uint64(spans) //nolint:gosec // as above
}

// addRequest counts a request that was answered with a gRPC code.
func (c *counts) addRequest(from *conn, answer codes.Code) {
	from.requests.Add(1)
	name, ok := code.Code_name[int32(answer)] //nolint:gosec // codes are small
	if !ok {
		name = code.Code_UNKNOWN.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[from.protocol] == nil {
		c.requests[from.protocol] = map[string]uint64{}
	}
	c.requests[from.protocol][name]++
}

// maxSenders bounds the senders in a status.
const maxSenders = 20

// Status returns the connections and the counts for admin.Server.ShowRelay.
func (s *Server) Status() admin.Relay {
	r := admin.Relay{Connections: map[string]int{}, Requests: map[string]map[string]uint64{}}
	for i, l := range s.Listeners() {
		r.Endpoints = append(r.Endpoints, l.Protocol+" "+l.Endpoint)
		r.Connections[s.fronts[i].protocol] = 0
	}
	s.service.counts.mu.Lock()
	r.Spans = maps.Clone(s.service.counts.spans)
	for protocol, answers := range s.service.counts.requests {
		r.Requests[protocol] = maps.Clone(answers)
	}
	s.service.counts.mu.Unlock()
	s.conns.describe(&r)
	return r
}

// describe adds the connections to a status.
func (a *connections) describe(r *admin.Relay) {
	senders := map[string]*admin.RelaySender{}
	a.mu.Lock()
	r.Closed = maps.Clone(a.refused)
	for c := range a.open {
		r.Connections[c.protocol]++
		one := senders[c.sender]
		if one == nil {
			one = &admin.RelaySender{Name: c.sender}
			senders[c.sender] = one
		}
		one.Connections++
		one.Requests += c.requests.Load()
		one.PushedBack += c.pushedBack.Load()
		one.Spans += c.spans.Load()
	}
	a.mu.Unlock()
	r.Senders = []admin.RelaySender{}
	for _, one := range senders {
		r.Senders = append(r.Senders, *one)
	}
	slices.SortFunc(r.Senders, func(a, b admin.RelaySender) int {
		return cmp.Or(cmp.Compare(b.PushedBack, a.PushedBack), cmp.Compare(b.Spans, a.Spans), cmp.Compare(a.Name, b.Name))
	})
	r.Senders = r.Senders[:min(len(r.Senders), maxSenders)]
}
