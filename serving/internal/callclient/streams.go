package callclient

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
)

// stream carries calls, one after another, because a new stream for each call would cost
// more than twice as much as a call on an existing stream.
type stream struct {
	grpc.BidiStreamingClient[servev1.CallRequest, servev1.CallResponse] // nil until open

	ctx    context.Context
	cancel context.CancelCauseFunc
}

// open opens the stream for its first call. s.cancel ends the wait for the connection.
func (s *stream) open(calls servev1.CallsClient) (err error) {
	if s.BidiStreamingClient == nil {
		s.BidiStreamingClient, err = calls.Call(s.ctx)
	}
	return err
}

// mostIdle bounds the idle streams of a connection.
const mostIdle = 64

// streams are the idle streams of a connection. The methods are safe for concurrent use.
type streams struct {
	mu      sync.Mutex
	idle    []*stream
	leaving bool // no stream is kept
}

// take returns a stream for a call: the one that was used last, or a new one.
func (c *streams) take() *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(c.idle) - 1; last >= 0 {
		s := c.idle[last]
		c.idle = c.idle[:last]
		return s
	}
	s := new(stream)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// put keeps a stream for the next call, unless the stream has ended.
func (c *streams) put(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving || len(c.idle) >= mostIdle || s.ctx.Err() != nil {
		s.cancel(nil)
		return
	}
	c.idle = append(c.idle, s)
}

// end ends the idle streams. If leaving is true, put keeps no streams from now on,
// because the other process is about to stop and waits for their end.
func (c *streams) end(leaving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.idle {
		s.cancel(nil)
	}
	c.idle, c.leaving = nil, leaving
}
