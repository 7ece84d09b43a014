package socket

import (
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// answerTime is the time that the handler has to answer the client's close frame. After
// the end of the connection, the handler has this time between two reads of buffered bytes.
// When the time has passed, the handler's context ends.
const answerTime = 100 * time.Millisecond

// closing records how a socket ends: by a close frame of either side, the end of the
// connection, or a call of Conn.finish. Its methods are safe for concurrent use.
type closing struct {
	over func(End) // called once, when the socket has ended

	mu          sync.Mutex
	sent        int         // code of the close frame that the server has sent; 0 if it has sent none
	received    int         // code of the close frame that the client has sent; 0 if it has sent none
	clientFirst bool        // the client's close frame came before the server's
	reported    bool        // over has been called
	timer       *time.Timer // calls report at the end of answerTime; nil before the first call of soon
	why         error       // error of the handler's reads and writes; nil until Conn.finish is called
}

// noteSent records the code of a close frame that the server sends. It is called before the
// write of the frame, because the client's answer may come before the write returns.
func (c *closing) noteSent(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = code
}

// noteUnsent undoes noteSent, because the write of the close frame has failed.
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

// code returns the code of the first close frame of either side. Without a close frame it is
// wsframe.CodeAbnormal.
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

// byClient reports whether the client's close frame came before the server's.
func (c *closing) byClient() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clientFirst
}

// soon makes a timer call report after answerTime. A later call of soon starts the timer
// again.
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

// report calls over with the recorded end of the socket, unless over was called before.
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

// reportEnd calls over with end, unless over was called before.
func (c *closing) reportEnd(end End) {
	c.mu.Lock()
	reported := c.reported
	c.reported = true
	c.mu.Unlock()
	if !reported {
		c.over(end)
	}
}

// begin records that Conn.finish ends the socket. From now on, the handler's reads and writes
// fail with why. begin returns the code of the client's close frame, 0 if there is none. It
// returns false if it was called before.
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

// ended returns the error with which the handler's reads and writes must fail. It is nil until
// Conn.finish has begun to end the socket.
func (c *closing) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}
