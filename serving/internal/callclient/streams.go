package callclient

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
)

// stream is a gRPC stream that carries several calls, one after another. A new stream for
// each call would cost more than twice as much.
type stream struct {
	grpc.BidiStreamingClient[servev1.CallRequest, servev1.CallResponse] // the gRPC stream; nil before open

	ctx    context.Context         // context of the gRPC stream
	cancel context.CancelCauseFunc // ends ctx
}

// open opens the gRPC stream if this is the first call. It may wait for the connection, until
// s.cancel is called.
func (s *stream) open(calls servev1.CallsClient) (err error) {
	if s.BidiStreamingClient == nil {
		s.BidiStreamingClient, err = calls.Call(s.ctx)
	}
	return err
}

// mostIdle is the largest number of idle streams that a connection keeps.
const mostIdle = 64

// streams has the idle streams of a connection. Its methods are safe for concurrent use.
type streams struct {
	mu      sync.Mutex
	idle    []*stream // the last stream was used most recently
	leaving bool      // the other process is about to stop, so no stream is kept
}

// take returns a stream for a call: the idle stream that was used last, or a new stream.
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

// put keeps a stream for a later call. It ends the stream instead if enough streams are idle
// or the other process is about to stop.
func (c *streams) put(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving || len(c.idle) >= mostIdle || s.ctx.Err() != nil {
		s.cancel(nil)
		return
	}
	c.idle = append(c.idle, s)
}

// end ends the idle streams. leaving reports that the other process is about to stop, and
// waits for the end of its streams. Then put keeps no streams.
func (c *streams) end(leaving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.idle {
		s.cancel(nil)
	}
	c.idle, c.leaving = nil, leaving
}
