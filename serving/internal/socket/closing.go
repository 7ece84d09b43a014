package socket

import (
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// answerTime is the time that the handler has to answer the client's close frame. After
// the end of the connection, the handler has this time for each read of remaining bytes.
// When the time has passed, the handler's context ends.
const answerTime = 100 * time.Millisecond

// closing records the end of a socket: a close frame of either side, the end of the
// connection, or a call of finish. Its methods are safe for concurrent use.
type closing struct {
	over func(End)

	mu          sync.Mutex
	sent        int         // the code of the close frame of this side; 0 for none
	received    int         // the code of the client's close frame; 0 for none
	clientFirst bool        // the client's close frame came first
	reported    bool        // over has been called
	timer       *time.Timer // calls report; nil until soon is called
	why         error       // error of the handler's reads and writes; nil before finish
}

// noteSent notes the close frame of this side. It is called before the write of the
// frame, because the client's answer may be read before the write returns.
func (c *closing) noteSent(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = code
}

// noteUnsent undoes noteSent after a failed write.
func (c *closing) noteUnsent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.clientFirst = 0, c.received != 0
}

func (c *closing) noteReceived(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received, c.clientFirst = code, c.sent == 0
}

// code returns the code of the close frame that came first.
func (c *closing) code() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.clientFirst:
		return c.received
	case c.sent != 0:
		return c.sent
	}
	return wsframe.CodeAbnormal
}

// byClient reports whether the client's close frame came first.
func (c *closing) byClient() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clientFirst
}

// soon calls report after answerTime. Another call of soon starts the time again.
func (c *closing) soon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reported || c.why != nil:
	case c.timer == nil:
		c.timer = time.AfterFunc(answerTime, c.report)
	default:
		c.timer.Reset(answerTime)
	}
}

// report calls over, once, with the end that was recorded.
func (c *closing) report() {
	c.mu.Lock()
	end := Closed
	switch {
	case c.why != nil:
		end = Left
	case c.sent == 0 && c.received == 0:
		end = Gone
	}
	c.mu.Unlock()
	c.reportEnd(end)
}

// reportEnd calls over, once.
func (c *closing) reportEnd(end End) {
	c.mu.Lock()
	reported := c.reported
	c.reported = true
	c.mu.Unlock()
	if !reported {
		c.over(end)
	}
}

// begin begins the end by finish: the handler's calls fail with why from now on. It
// returns the code of the client's close frame, 0 for none, and whether this call is the
// first.
func (c *closing) begin(why error) (received int, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return 0, false
	}
	c.why = why
	if c.timer != nil {
		c.timer.Stop()
	}
	return c.received, true
}

// ended returns the error for the handler's calls after begin, nil before begin.
func (c *closing) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}
