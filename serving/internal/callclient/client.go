// Package callclient calls deployments that other processes run.
//
// The life of a [Set], which has the processes of one deployment:
//
//  1. Start watches a source of package discovery. Each process has a goroutine that
//     watches the state of the deployment there, and lists the process at the router
//     while the process takes calls.
//  2. The router chooses a process, and Offer asks it to run a call. See package router
//     for refusals.
//  3. Stop ends the watches. Wait waits until the goroutines and connections are gone.
//
// All sets of a server share a [Pool], so that a process has one connection however many
// of its deployments are called.
//
// The package runs no user code. Package callserver is the other side. Open client.go
// first, then set.go and call.go.
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

// Settings are the operator's settings. MaxMessageBytes is not zero.
type Settings struct {
	MaxMessageBytes int
	// Credentials are for TLS. nil: no TLS.
	Credentials credentials.TransportCredentials
}

// Pool has the connections to other processes, one for each address. Its methods are
// safe for concurrent use.
type Pool struct {
	settings Settings

	mu    sync.Mutex
	conns map[string]*conn // by address
}

// conn is a connection with the number of its users. The pool's mu guards users.
type conn struct {
	*grpc.ClientConn

	calls servev1.CallsClient
	users int

	streams
}

// NewPool returns a pool without connections.
func NewPool(s Settings) *Pool {
	if s.Credentials == nil {
		s.Credentials = insecure.NewCredentials()
	}
	return &Pool{settings: s, conns: map[string]*conn{}}
}

// connectTimeout is the least time that the client waits for a connection.
const connectTimeout = 2 * time.Second

// reconnect makes grpc dial a lost process again soon, but not too often.
var reconnect = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// open returns the connection to an address. The caller must call release.
func (p *Pool) open(addr string) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[addr]; c != nil {
		c.users++
		return c, nil
	}
	// The client connects later. It needs no resolver and no balancer, because addr is a
	// single address.
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
		grpc.WithDisableRetry(), // the router decides where a call goes
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

// release closes a connection after its last user.
func (p *Pool) release(addr string, c *conn) {
	p.mu.Lock()
	c.users--
	last := c.users == 0
	if last {
		delete(p.conns, addr)
	}
	p.mu.Unlock()
	if last {
		_ = c.Close() // the connection carries no call
	}
}
