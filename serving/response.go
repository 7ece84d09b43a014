package serving

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// phase says whose the response is. It only moves forward.
type phase uint8

const (
	open     phase = iota // nobody has written yet
	begun                 // the handler has: status and headers are out of its hands
	hijacked              // the handler has taken the connection over
	ended                 // the handler has returned; whoever waits for it concludes
	lost                  // the proxy took the response away while the handler ran
)

func (p phase) String() string {
	return [...]string{"open", "begun", "hijacked", "ended", "lost"}[p]
}

// response is the http.ResponseWriter that a handler sees. The handler and the
// proxy (at a timeout, say) both may want to answer: exactly one of them gets
// to. It is the first that comes, except that the handler cannot begin once the
// request's context has ended; so which of them it was never depends on which
// goroutine the scheduler woke first.
//
// Nothing is buffered here; net/http holds up to some 4 KiB until a Flush, but
// for server-sent events, each of which goes out when it is whole. Of the
// optional interfaces it has Flusher, the deadlines and EnableFullDuplex of
// http.ResponseController, io.StringWriter, and Hijacker for requests that ask
// for another protocol: see upgrade.go. It has no Unwrap, which would let a
// handler write past the lock.
type response struct {
	ctx     context.Context     // with the proxy span; nil without a route
	conn    http.ResponseWriter // the connection's; guarded by mu once the handler runs
	x       *exchange           // whose part it is: its request id and route are read
	heads   *connection         // which puts the request id into the head; nil: it is to be among the headers
	request *http.Request       // as the app sees it
	body    *requestBody        // nil if there is none
	upgrade *upgrade            // nil if the request asks for none
	watched watched
	stalled atomic.Bool // its client is held to account for it

	mu      sync.Mutex
	phase   phase
	informs bool        // a 1xx has put headers on conn
	events  bool        // it is a stream of server-sent events,
	line    bool        // of which the last line is whole
	header  http.Header // the handler's own map, copied to conn as it begins
	status  int         // what the handler has told the client; 0 while open
	left    int64       // bytes of a declared Content-Length to come; -1: unknown
	cause   error       // why the response was lost
}

var (
	_ http.Flusher    = (*response)(nil)
	_ http.Hijacker   = (*response)(nil)
	_ io.StringWriter = (*response)(nil)
)

// prepare makes p the response of x, to r as the app sees it.
func (p *response) prepare(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) {
	p.ctx, p.conn, p.request, p.x = ctx, w, r, x
	p.left = -1
	p.body = newRequestBody(r, &p.watched)
}

// Header implements [http.ResponseWriter].
func (p *response) Header() http.Header {
	if p.header == nil {
		p.header = make(http.Header)
	}
	return p.header
}

// WriteHeader implements [http.ResponseWriter]; a 1xx is sent at once.
func (p *response) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.phase == begun:
		p.conn.WriteHeader(status) // net/http logs that it is superfluous
	case p.phase != open || p.ctx.Err() != nil:
		// The proxy answers, or has answered: the next Write says so.
	case status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols:
		maps.Copy(p.conn.Header(), p.header)
		p.informs = true
		p.moveLocked()
		p.conn.WriteHeader(status)
		p.watched.writing.Store(0)
	default:
		p.beginLocked(status)
		if p.events {
			_ = p.flushLocked() // the client's open event does not wait for the first one; Write tells
		}
	}
}

// Write implements [http.ResponseWriter]. It fails with the context's cause
// once the request has been ended.
func (p *response) Write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.claimLocked(); err != nil {
		return 0, err
	}
	defer p.watched.writing.Store(0)
	event := p.events && endsEvent(b, &p.line)
	for {
		p.moveLocked()
		m, err := p.conn.Write(b[:min(len(b), stepBytes)])
		p.countLocked(m)
		n += m
		b = b[m:]
		if err != nil {
			return n, err
		}
		p.watched.moved()
		if len(b) > 0 {
			continue
		}
		if event {
			err = p.controller().Flush()
		}
		return n, err
	}
}

// stepBytes is how much is written at once: what a client has to take within
// the stall timeout.
const stepBytes = 64 << 10

// moveLocked tells the watch that a write begins.
func (p *response) moveLocked() { p.watched.writing.Store(p.watched.now()) }

// WriteString implements [io.StringWriter].
func (p *response) WriteString(s string) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.claimLocked(); err != nil {
		return 0, err
	}
	defer p.watched.writing.Store(0)
	event := p.events && endsEvent(s, &p.line)
	for {
		p.moveLocked()
		m, err := io.WriteString(p.conn, s[:min(len(s), stepBytes)])
		p.countLocked(m)
		n += m
		s = s[m:]
		if err != nil {
			return n, err
		}
		p.watched.moved()
		if s != "" {
			continue
		}
		if event {
			err = p.controller().Flush()
		}
		return n, err
	}
}

// Flush implements [http.Flusher].
func (p *response) Flush() { _ = p.FlushError() }

// FlushError is what [http.ResponseController.Flush] calls.
func (p *response) FlushError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.claimLocked(); err != nil {
		return err
	}
	return p.flushLocked()
}

func (p *response) flushLocked() error {
	p.moveLocked()
	defer p.watched.writing.Store(0)
	return p.controller().Flush()
}

// endsEvent reports whether b ends with the empty line that ends an event, so
// that it can be sent without a Flush: until then no client acts on it. line
// says whether what came before b ended a line, and then whether b does.
//
// Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
func endsEvent[T string | []byte](b T, line *bool) bool {
	before, n := *line, len(b)
	if n == 0 {
		return false
	}
	*line = b[n-1] == '\n'
	if !*line {
		return false
	}
	n--
	if n > 0 && b[n-1] == '\r' {
		n--
	}
	return n == 0 && before || n > 0 && b[n-1] == '\n'
}

// isEventStream reports whether h is of a stream of server-sent events.
func isEventStream(h http.Header) bool {
	types := h["Content-Type"]
	return len(types) > 0 && strings.HasPrefix(types[0], "text/event-stream")
}

// SetReadDeadline is what [http.ResponseController.SetReadDeadline] calls.
func (p *response) SetReadDeadline(t time.Time) error {
	return p.control(func(c *http.ResponseController) error { return c.SetReadDeadline(t) })
}

// SetWriteDeadline is what [http.ResponseController.SetWriteDeadline] calls.
func (p *response) SetWriteDeadline(t time.Time) error {
	return p.control(func(c *http.ResponseController) error { return c.SetWriteDeadline(t) })
}

// EnableFullDuplex is what [http.ResponseController.EnableFullDuplex] calls.
func (p *response) EnableFullDuplex() error {
	return p.control((*http.ResponseController).EnableFullDuplex)
}

func (p *response) control(set func(*http.ResponseController) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase > begun {
		return p.lostLocked()
	}
	return set(p.controller())
}

// claimLocked makes the response the handler's, with status 200 if it has not
// begun, or says why it no longer can be.
func (p *response) claimLocked() error {
	switch {
	case p.phase == begun:
		return nil
	case p.phase > begun:
		return p.lostLocked()
	case p.ctx.Err() != nil:
		return p.whyOver()
	}
	p.beginLocked(http.StatusOK)
	return nil
}

func (p *response) lostLocked() error {
	if p.phase == hijacked {
		return http.ErrHijacked
	}
	if p.cause != nil {
		return p.cause
	}
	return http.ErrHandlerTimeout // written to after the handler returned
}

// beginLocked sends status and the handler's headers.
func (p *response) beginLocked(status int) {
	if status == http.StatusSwitchingProtocols {
		p.heads = nil // net/http may still send a 100 Continue before it
	}
	if p.heads == nil || p.informs || len(p.header) > 0 {
		p.copyLocked(status)
	}
	p.conn.WriteHeader(status) // panics on nonsense, and then nothing has begun
	if p.heads != nil {
		p.heads.identify(p.x.request.ID)
	}
	p.phase, p.status, p.events = begun, status, isEventStream(p.header)
	switch {
	case p.request.Method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified:
		p.left = 0
	default:
		p.left = declaredLength(p.header)
	}
}

// copyLocked puts the handler's headers on conn.
func (p *response) copyLocked(status int) {
	h := p.conn.Header()
	if p.informs {
		clear(h) // the handler may have taken back what a 1xx carried
	}
	maps.Copy(h, p.header)
	delete(h, headerRequestID) // it is not the handler's to say
	if p.heads == nil {
		h[headerRequestID] = []string{p.x.request.ID}
	}
	if prefix := p.x.route.prefix; prefix != "/" && status >= 300 && status <= 399 {
		if to, ok := rebase(h.Get("Location"), prefix, p.request.URL.Path); ok {
			h.Set("Location", to)
		}
	}
}

func declaredLength(h http.Header) int64 {
	declared := h["Content-Length"]
	if len(declared) == 0 {
		return -1
	}
	if n, err := strconv.ParseInt(declared[0], 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

func (p *response) countLocked(n int) {
	if p.left > 0 {
		p.left -= int64(n)
	}
}

// completeLocked reports whether the client may have all of the response though
// the handler still runs. It may leave then without spoiling anything.
func (p *response) completeLocked() bool { return p.phase == begun && p.left == 0 }

// end is called once, when the handler has returned with err. It completes an
// ordinary response and returns what ended the request if that was anything
// else, and the status that the handler has told the client, 0 if none. A panic of
// the handler counts for more than the context's end, and that for more than an
// error, which then only is its consequence.
func (p *response) end(err error) (status int, _ error) {
	if s := p.socket(); s != nil {
		err = p.endSocket(s, err)
		return s.Status(), err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == lost {
		return p.status, heavier(err, p.cause)
	}
	// A write may fail before the context ends, where the watch has ended it.
	if (p.ctx.Err() != nil || p.stalled.Load()) && !p.completeLocked() {
		err = heavier(err, p.whyOver())
	}
	if err == nil {
		if p.phase == open {
			p.beginLocked(http.StatusOK)
		}
		if len(p.header) > 0 {
			maps.Copy(p.conn.Header(), p.header) // trailers; net/http looks for nothing else now
		}
	}
	p.phase = ended
	return p.status, err
}

func heavier(err, cause error) error {
	if isPanic(err) {
		return err
	}
	return cause
}

// take is the proxy's: the request's context has ended with cause while the
// handler may still run. It gives the phase in which it found the response.
// Unless that is ended or hijacked, the handler can no longer write, no write of it is
// under way, and the connection is the proxy's. complete says that the handler
// had written all that it had declared.
func (p *response) take(cause error) (found phase, complete bool) {
	reset := false
	if !p.mu.TryLock() {
		reset = p.lockHurried(cause)
	}
	defer p.mu.Unlock()
	switch {
	case p.phase == hijacked:
		p.cause = cause
		return hijacked, false
	case p.phase == ended && !reset:
		return ended, true
	case p.phase == ended:
		found = begun // and net/http has not told its end
	default:
		found, complete = p.phase, !reset && p.completeLocked()
	}
	p.phase = lost
	if !complete {
		p.cause = cause
	}
	return found, complete
}

// lockHurried takes mu from a handler that may be stuck in a write, holding it: the
// client does not read, or it does not send its body, of which net/http wants to
// see the end before it replies. Deadlines may be set at any time: net.Conn promises
// it. reset: the client does not get all of the response, whatever comes.
func (p *response) lockHurried(cause error) (reset bool) {
	retire(p.request)
	c := p.controller()
	if p.request.ProtoMajor == 1 {
		_ = c.SetWriteDeadline(time.Now().Add(patience(cause))) // without deadlines, the write ends by itself
		_ = c.SetReadDeadline(time.Now())                       // the body is not worth waiting for
		p.mu.Lock()
		_ = c.SetWriteDeadline(time.Time{}) // what is complete after all may be sent without hurry
		return false
	}
	_ = c.SetReadDeadline(time.Now()) // as above
	// HTTP/2 resets the stream when a deadline passes, though nobody writes: the
	// handler may only have got no processor.
	locked, cut := make(chan struct{}), make(chan bool)
	go func() { // ends when mu is locked
		tick := time.NewTicker(max(patience(cause), time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-locked:
				cut <- false
				return
			case <-tick.C:
			}
			if p.watched.writing.Load() != 0 {
				_ = c.SetWriteDeadline(time.Now()) // as above
				<-locked
				cut <- true // there is no response any more when net/http has it back
				return
			}
		}
	}()
	p.mu.Lock()
	close(locked)
	return <-cut
}

// cutGrace is how long a client that is slow to read may hold up the end of a
// response that is being cut.
const cutGrace = 250 * time.Millisecond

// patience is how long what is under way may go on once cause has ended a request.
func patience(cause error) time.Duration {
	if errors.Is(cause, ErrClientGone) {
		return 0
	}
	return cutGrace
}

// reply answers in the handler's place. It is called when the handler has
// returned, has not begun, or has lost the response before it began.
func (p *response) reply(status int, text string, retryAfter string) {
	h := p.conn.Header()
	if p.informs {
		clear(h)
	}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	writeText(p.conn, status, p.x.request.ID, text)
}

// abandon prepares the connection for the return from a request whose handler
// still runs: the handler reads no more of the body, and the connection ends
// with the response.
func (p *response) abandon(cause error) {
	if p.request.ProtoMajor == 1 && p.told() == 0 {
		p.conn.Header().Set("Connection", "close") // there is still time to say so
	}
	p.endBody(cause)
}

// endBody has reads of the body fail, net/http's own included.
func (p *response) endBody(cause error) {
	retire(p.request)
	p.body.end(cause, func() error { return p.controller().SetReadDeadline(time.Now()) })
}

// outlives reports whether the response can go on though the client holds up s,
// and then has seen to it: one of HTTP/2 that has begun can do without the rest
// of the body. With HTTP/1.1, net/http ends the context when it can not read.
func (p *response) outlives(s stall) bool {
	if s != readStall || p.request.ProtoMajor == 1 || !p.hasBegun() {
		p.stalled.Store(true)
		if s == writeStall {
			p.watched.closeStuck()
		}
		return false
	}
	p.endBody(ErrClientStalled)
	return true
}

// whyOver is the cause of the context's end. Once we hurry net/http's reads and
// writes, it ends the context as if the client had left.
func (p *response) whyOver() error {
	cause := causeOf(p.ctx)
	if p.stalled.Load() && errors.Is(cause, ErrClientGone) {
		return ErrClientStalled
	}
	return cause
}

// hasBegun is right about the handler's reading goroutine: who writes in another
// may be stuck in that, holding mu, and has begun then.
func (p *response) hasBegun() bool {
	if !p.mu.TryLock() {
		return true
	}
	defer p.mu.Unlock()
	return p.phase == begun
}

// flush sends what net/http still holds, so that the client sees the response's
// beginning before its connection is cut. A slow client gets grace.
func (p *response) flush(grace time.Duration) {
	c := p.controller()
	_ = c.SetWriteDeadline(time.Now().Add(grace))
	if p.body != nil && p.request.ProtoMajor == 1 {
		retire(p.request)
		_ = c.SetReadDeadline(time.Now().Add(cutGrace / 2)) // net/http may want to see its end first
	}
	_ = c.Flush() // it may have left
}

// told is the status that the handler has told the client, 0 if none.
func (p *response) told() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == hijacked {
		return p.upgrade.socket.Status()
	}
	return p.status
}

func (p *response) controller() *http.ResponseController {
	return http.NewResponseController(p.conn)
}

// writeText sends a plain text of the proxy's own.
func writeText(w http.ResponseWriter, status int, requestID, text string) {
	h := w.Header()
	h["Content-Type"] = []string{"text/plain; charset=utf-8"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	if requestID != "" {
		h[headerRequestID] = []string{requestID}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may have left
}
