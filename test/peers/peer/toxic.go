package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strconv"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// ToxicProxy is a Toxiproxy in front of an address, in this process. It can delay, cut
// or hold the traffic.
type ToxicProxy struct {
	tb    testing.TB
	proxy *toxiproxy.Proxy
	added int
}

// Where in a connection a toxic acts.
const (
	// Upstream is the direction from the client to the peer.
	Upstream = "upstream"
	// Downstream is the direction from the peer to the client.
	Downstream = "downstream"
)

// Toxic starts a proxy in front of an address, HOST:PORT, at which no process needs to
// listen yet. At first it changes nothing. It stops when the test ends.
func Toxic(tb testing.TB, upstream string) *ToxicProxy {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for try := 1; ; try++ {
		// Not a port that the kernel chooses, which another may get during Disable.
		proxy := toxiproxy.NewProxy(server, tb.Name(), loopback(freePorts(tb, 1)[0]), upstream)
		err := proxy.Start()
		if err == nil {
			tb.Cleanup(proxy.Stop)
			return &ToxicProxy{tb: tb, proxy: proxy}
		}
		if try == startTries {
			tb.Fatal(err)
		}
	}
}

// Address is where the proxy listens, 127.0.0.1:PORT. Safe for concurrent use.
func (p *ToxicProxy) Address() string { return p.proxy.Listen }

// HTTP is the same as an URL. Safe for concurrent use.
func (p *ToxicProxy) HTTP() string { return "http://" + p.Address() }

// Add adds a toxic, to connections that there are as to new ones: "latency"
// {latency, jitter: milliseconds}, "timeout" {timeout: milliseconds, 0 for never:
// nothing gets through until it is removed}, "reset_peer" {timeout}, "bandwidth"
// {rate: KB/s}, "slow_close" {delay}, "slicer" {average_size, delay:
// microseconds}, "limit_data" {bytes}. Stream is Upstream or Downstream.
func (p *ToxicProxy) Add(kind, stream string, attributes map[string]any) {
	p.tb.Helper()
	p.added++
	text, err := json.Marshal(object{
		"name": kind + strconv.Itoa(p.added), "type": kind, "stream": stream, "attributes": attributes,
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	if _, err := p.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		p.tb.Fatalf("toxic %s: %v", text, err)
	}
}

// Clear removes all toxics. A connection that one of them has broken stays so.
func (p *ToxicProxy) Clear() { p.proxy.Toxics.ResetToxics(context.Background()) }

// Disable cuts all connections and refuses new ones until Enable. It returns
// when it does: a process that another test starts has our listener, too, until
// its program begins, and the kernel goes on to accept for as long.
func (p *ToxicProxy) Disable() {
	p.tb.Helper()
	p.proxy.Stop()
	waitFor(p.tb, p.Address()+" to refuse", 1, func() int {
		connection, err := net.Dial("tcp", p.Address())
		if err != nil {
			return 1
		}
		if err := connection.Close(); err != nil {
			p.tb.Error(err)
		}
		return 0
	})
}

// Enable takes connections again, on the same port.
func (p *ToxicProxy) Enable() {
	p.tb.Helper()
	if err := p.proxy.Start(); err != nil {
		p.tb.Fatal(err)
	}
}
