package relay

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"

	"github.com/servetrace/servetrace/admin"
)

// counts has the counts of answered requests and accepted spans. Safe for concurrent use.
type counts struct {
	mu       sync.Mutex
	requests map[string]map[string]uint64 // numbers by protocol and gRPC code
	spans    map[string]uint64            // numbers by protocol
}

func newCounts() *counts {
	return &counts{requests: map[string]map[string]uint64{}, spans: map[string]uint64{}}
}

// addSpans counts spans that the host has accepted.
func (c *counts) addSpans(from *conn, spans int) {
	from.tally.spans.Add(uint64(spans)) //nolint:gosec // a length
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans[from.protocol] += uint64(spans) //nolint:gosec // a length
}

// addRequest counts a request that was answered with a gRPC code.
func (c *counts) addRequest(from *conn, answer codes.Code) {
	from.tally.requests.Add(1)
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

// HeaderLost is the header of an HTTP request with the numbers of spans that the sender has
// lost since its last request with status 200, by reason: "queue_full=3,encode=1".
const HeaderLost = "servetrace-lost"

// otherLost is the reason under which lost spans are counted if the reason of the sender is
// not in zeroLost.
const otherLost = "other"

// zeroLost returns a map with a count of zero for each reason for which a sender loses spans.
func zeroLost() map[string]uint64 {
	return map[string]uint64{"queue_full": 0, "shutdown": 0, "encode": 0, "refused": 0, otherLost: 0}
}

// addLost adds the numbers in the value of HeaderLost to the counts. It ignores malformed
// parts.
func (c *conn) addLost(header string) {
	if header == "" {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.tally.lost == nil {
		c.tally.lost = map[string]uint64{}
	}
	for part := range strings.SplitSeq(header, ",") {
		reason, count, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(count, 10, 32)
		if err != nil {
			continue
		}
		if _, known := c.all.lost[reason]; !known {
			reason = otherLost
		}
		c.tally.lost[reason] += n
		c.all.lost[reason] += n
	}
}

// maxSenders bounds the number of senders in a status.
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
	r.Closed, r.Lost = maps.Clone(a.refused), maps.Clone(a.lost)
	for c := range a.open {
		r.Connections[c.protocol]++
		one := senders[c.sender]
		if one == nil {
			one = &admin.RelaySender{Name: c.sender}
			senders[c.sender] = one
		}
		one.Connections++
		one.Requests += c.tally.requests.Load()
		one.PushedBack += c.tally.pushedBack.Load()
		one.Spans += c.tally.spans.Load()
		for reason, n := range c.tally.lost {
			if one.Lost == nil {
				one.Lost = map[string]uint64{}
			}
			one.Lost[reason] += n
		}
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
