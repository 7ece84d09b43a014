package callclient

import "testing"

// TestIdleStreams: a call gets the stream that was used last, and no more than a bound are
// kept, none that has ended, and none while the process is about to stop.
func TestIdleStreams(t *testing.T) {
	var c streams
	a, b := c.take(), c.take()
	if a == b {
		t.Fatal("two calls have one stream")
	}
	c.put(a)
	c.put(b)
	if c.take() != b || c.take() != a {
		t.Error("a call got another stream than the one that was used last")
	}
	for range 2 * mostIdle {
		c.put(new(streams).take())
	}
	if len(c.idle) != mostIdle {
		t.Errorf("%d streams are idle, want %d", len(c.idle), mostIdle)
	}
	c.take()
	gone := new(streams).take()
	gone.cancel(errNoAnswer)
	if c.put(gone); len(c.idle) != mostIdle-1 {
		t.Error("a stream that has ended is kept")
	}
	kept := c.idle[0]
	c.end(true)
	c.put(a)
	if len(c.idle) != 0 || kept.ctx.Err() == nil || a.ctx.Err() == nil {
		t.Error("a stream is kept while the process stops")
	}
	c.end(false)
	c.put(b)
	if c.take() != b || b.ctx.Err() != nil {
		t.Error("the stream is not kept after the stop")
	}
}
