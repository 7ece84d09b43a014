// Package callclient calls deployments that other processes run.
//
// The life of a [Set], which has the processes of one deployment:
//
//  1. Start watches a source of package discovery. Each process has a goroutine, which
//     watches the state of the deployment in that process. While the process takes calls,
//     the router of this process may choose it.
//  2. The router chooses a process, and Offer asks it to run a call. If the process refuses
//     the call, the router tries another process.
//  3. Stop ends the watches. Wait waits until the goroutines and connections are gone.
//
// All sets of a server share a [Pool], so that there is one connection to each process, even
// if several of its deployments are called.
//
// The package runs no user code. Package callserver is the side that runs the calls. Open
// client.go first, then set.go and call.go.
package callclient

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/serving/internal/callwire"
)

// Settings are the operator's settings.
type Settings struct {
	MaxMessageBytes int // largest size of a message, in both directions; not zero
	// Credentials are the credentials for TLS. If they are nil, connections have no TLS.
	Credentials credentials.TransportCredentials
}

// Pool has one connection for each address of another process. Its methods are safe for
// concurrent use.
type Pool struct {
	settings Settings

	mu    sync.Mutex
	conns map[string]*conn // the connections, by the address of the process
}

// conn is a connection to another process, and its idle streams.
type conn struct {
	*grpc.ClientConn

	calls servev1.CallsClient
	users int // number of calls of open without release; guarded by the pool's mu

	streams
}

// NewPool returns a pool without connections.
func NewPool(s Settings) *Pool {
	if s.Credentials == nil {
		s.Credentials = insecure.NewCredentials()
	}
	return &Pool{settings: s, conns: map[string]*conn{}}
}

// connectTimeout is the time after which grpc gives up an attempt to connect, unless the
// backoff is longer.
const connectTimeout = 2 * time.Second

// reconnect is the backoff with which grpc connects again to a process that was lost.
var reconnect = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// open returns the connection to an address, and counts the caller as a user. The caller must
// call release.
func (p *Pool) open(addr string) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[addr]; c != nil {
		c.users++
		return c, nil
	}
	// NewClient does not connect yet. The scheme passthrough uses no resolver, because addr
	// is a single address.
	client, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(p.settings.Credentials),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: callwire.KeepaliveTime, Timeout: callwire.KeepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(p.settings.MaxMessageBytes),
			grpc.MaxCallSendMsgSize(p.settings.MaxMessageBytes),
		),
		grpc.WithStaticStreamWindowSize(callwire.WindowBytes),
		grpc.WithStaticConnWindowSize(callwire.WindowBytes),
		grpc.WithDisableRetry(), // the router tries other processes
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c := &conn{ClientConn: client, calls: servev1.NewCallsClient(client), users: 1}
	p.conns[addr] = c
	return c, nil
}

// release ends a use of a connection that open returned, and closes the connection after its
// last use.
func (p *Pool) release(addr string, c *conn) {
	p.mu.Lock()
	c.users--
	last := c.users == 0
	if last {
		delete(p.conns, addr)
	}
	p.mu.Unlock()
	if last {
		_ = c.Close() // an error has no effect, because the connection carries no call
	}
}
