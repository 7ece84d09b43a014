package peer

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports are below the ports that the kernel assigns to connections (from 32768 on), so
// that no other process gets the port of a peer that is down for a while.
const (
	firstPort = 12000
	lastPort  = 31999
)

// freePorts returns ports of the loopback on which no process listens now. Another test
// may draw the same port before the peer listens. The caller then tries again with
// other ports.
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
