package mixed

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// plan is the work of one request, and the faults that it meets.
type plan struct {
	n       int // the request's number
	app     string
	version string // of HTTP, or another protocol
	body    int    // bytes that the client sends
	parent  string // traceparent; empty for none
	steps   []step // of the handler, before its end
	end     ending
	deep    ending // of the deployment that it calls
	leave   leaving
	after   time.Duration // after which a client leaves that does by the clock
}

// step is something that a handler does.
type step int

const (
	pause    step = iota // for some milliseconds, or until the context ends
	read                 // the body
	write                // a piece of the response
	userOwn              // a span of user code
	call                 // a function of another deployment, which calls a batched one
	callMany             // three at a time
	stream               // a stream of another deployment
	leaveIt              // the same, and leave it after the first
	batch                // a function that runs for many requests at once
	tokens               // the same that answers with streams
	steps
)

// ending is how a handler ends.
type ending int

const (
	answer200 ending = iota
	answer404
	answer503
	fail
	doPanic
	abort  // as net/http has for it
	goexit // ends its goroutine
	hang   // until its context ends
)

// leaving is how a client treats its request.
type leaving int

const (
	stay      leaving = iota
	byClock           // goes after some milliseconds
	midStream         // goes when it has seen the beginning of the response
)

// draw draws the plan of request n. The same seed gives the same.
func draw(seed uint64, n int) plan {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	p := plan{
		n:       n,
		app:     pick(r, weighted[string]{"front", 85}, weighted[string]{"tight", 15}),
		version: pick(r, weighted[string]{http1, 35}, weighted[string]{http2, 30}, weighted[string]{socket, 10}, weighted[string]{overGRPC, 25}),
	}
	if r.IntN(4) == 0 {
		p.body = 1 + r.IntN(64<<10)
	}
	if flags := pick(r, weighted[string]{"01", 45}, weighted[string]{"00", 10}, weighted[string]{"", 45}); flags != "" {
		p.parent = fmt.Sprintf("00-%016x%016x-%016x-%s", r.Uint64()|1, r.Uint64(), r.Uint64()|1, flags)
	}
	for range r.IntN(4) {
		p.steps = append(p.steps, step(r.IntN(int(steps))))
	}
	p.end, p.deep = pick(r, endings...), pick(r, endings...)
	if p.end == abort && p.version == http1 {
		p.version = http1Fresh
	}
	p.leave = pick(r, leavings...)
	p.after = time.Duration(r.IntN(20_000)) * time.Microsecond
	return p
}

// weighted is a value that is drawn as often as its weight says.
type weighted[T any] struct {
	value  T
	weight int
}

var (
	endings = []weighted[ending]{
		{answer200, 70}, {answer404, 5}, {answer503, 3}, {fail, 6}, {doPanic, 5}, {abort, 3}, {goexit, 2}, {hang, 6},
	}
	leavings = []weighted[leaving]{{stay, 80}, {byClock, 12}, {midStream, 8}}
)

func pick[T any](r *rand.Rand, table ...weighted[T]) T {
	sum := 0
	for _, w := range table {
		sum += w.weight
	}
	at := r.IntN(sum)
	for _, w := range table {
		if at -= w.weight; at < 0 {
			return w.value
		}
	}
	return table[0].value // not reached: at is below the sum
}

// sampled says whether the trace of the request is, under the default settings.
func (p plan) sampled() bool { return !strings.HasSuffix(p.parent, "-00") }

// id is the request's, by which everything that is recorded finds its number.
func (p plan) id() string { return "mixed-" + strconv.Itoa(p.n) }

// numberOf gives the number of the request with an id, false for no request of
// a plan.
func numberOf(id string) (int, bool) {
	text, ok := strings.CutPrefix(id, "mixed-")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil
}
