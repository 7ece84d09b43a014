package peer

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports are drawn below those that the kernel hands out for connections (from
// 32768 on), so that nobody gets one while its peer is down for a while.
const (
	firstPort = 12000
	lastPort  = 31999
)

// freePorts gives ports of the loopback that nobody listens on right now. A
// neighbour may draw the same before the peer listens: whoever starts a peer
// tries again with others then.
func freePorts(tb testing.TB, n int) []int {
	tb.Helper()
	var ports []int
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			if err := l.Close(); err != nil {
				tb.Error(err)
			}
		}
	}()
	var last error
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			last = err
			continue
		}
		listeners, ports = append(listeners, listener), append(ports, port)
		if len(ports) == n {
			return ports
		}
	}
	tb.Fatalf("no %d free ports between %d and %d: %v", n, firstPort, lastPort, last)
	return nil
}

// loopback is the address of a port.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
