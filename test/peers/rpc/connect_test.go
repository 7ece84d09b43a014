package rpc

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/test/peers/peer"
)

// TestConnectConformance holds Connect's conformance suite: the proxy fails no
// case that grpc-go alone passes. The exception is the size limit, which the
// suite sets for requests and MaxMessageBytes applies to responses too: a
// request of exactly that size does not fit into the response that repeats it.
func TestConnectConformance(t *testing.T) {
	barePassed, bare := peer.ConnectConformance(t, "-bare")
	passed, ours := peer.ConnectConformance(t)
	limited := 0
	maps.DeleteFunc(ours, func(name, reason string) bool {
		response := strings.HasPrefix(name, "Server Message Size/") && strings.HasSuffix(name, "equal-to-server-limit") &&
			strings.Contains(reason, "CODE_RESOURCE_EXHAUSTED") && strings.Contains(reason, "to send message larger than max")
		if response {
			limited++
		}
		return response
	})
	if barePassed+len(bare) < 300 || passed+limited+len(ours) != barePassed+len(bare) {
		t.Errorf("%d cases with grpc-go, %d with the proxy; want the same, 300 and more", barePassed+len(bare), passed+limited+len(ours))
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(bare)), slices.Sorted(maps.Keys(ours))); diff != "" {
		t.Errorf("failed cases (-grpc-go +proxy):\n%s\n%v", diff, ours)
	}
	t.Logf("passed: %d with grpc-go, %d with the proxy, which also failed %d by its limit of responses", barePassed, passed, limited)
}
