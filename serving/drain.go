package serving

import (
	"errors"
	"sync/atomic"
)

// work counts what is under way, and admits or refuses in the same step: no
// request slips in once draining has begun.
type work struct {
	idle chan struct{} // closed when draining, and nothing is under way

	// state is the counts of what is under way and the bits below, in one word
	// that each request changes twice.
	state atomic.Uint64
}

// What state has: requests in the proxy, and user code that runs for a request or
// a call, which may outlive its request.
const (
	oneRequest   uint64 = 1
	oneHandler   uint64 = 1 << 30
	workBegun    uint64 = 1 << 60
	workLeaving  uint64 = 1 << 61 // health says so; requests are still taken until draining
	workDraining uint64 = 1 << 62
	workEnded    uint64 = 1 << 63 // idle is closed, or about to be: nothing is let in any more

	underWay = workBegun - 1
)

func newWork() *work {
	return &work{idle: make(chan struct{})}
}

// admit counts a request in, unless the server drains.
func (k *work) admit() bool {
	if k.state.Add(oneRequest)&workDraining != 0 {
		k.less(oneRequest)
		return false
	}
	return true
}

func (k *work) requestDone() { k.less(oneRequest) }

var errNotStarted = errors.New("its server has not started: call Server.Start first")

// start lets calls by handle in.
func (k *work) start() { k.state.Or(workBegun) }

// admitCall counts in a call by handle, which handlerDone counts out. One from
// inside user code that is counted itself is admitted whatever the state.
// Otherwise it fails with errNotStarted or ErrShuttingDown.
func (k *work) admitCall(inside bool) error {
	s := k.state.Add(oneHandler)
	switch {
	case s&workEnded != 0, s&workDraining != 0 && !inside: // if inside, then the caller has ended meanwhile
		k.less(oneHandler)
		return ErrShuttingDown
	case s&workBegun == 0 && !inside:
		k.less(oneHandler)
		return errNotStarted
	}
	return nil
}

// handlerStarts is called by an admitted request only.
func (k *work) handlerStarts() { k.state.Add(oneHandler) }

func (k *work) handlerDone() { k.less(oneHandler) }

// leave has health say that the server is about to stop.
func (k *work) leave() { k.state.Or(workLeaving) }

// drain refuses from now on. Call it once, after leave.
func (k *work) drain() {
	k.state.Or(workDraining)
	k.endIdle()
}

// less counts one request or handler out.
func (k *work) less(one uint64) {
	if k.state.Add(-one)&workDraining != 0 {
		k.endIdle()
	}
}

// endIdle closes idle in its time, once: only requests and handlers start
// handlers, and no request is admitted any more. One that is being refused is
// counted for a moment, and then comes here itself.
func (k *work) endIdle() {
	for {
		s := k.state.Load()
		if s&workDraining == 0 || s&(underWay|workEnded) != 0 {
			return
		}
		if k.state.CompareAndSwap(s, s|workEnded) {
			close(k.idle)
			return
		}
	}
}

// isDraining says whether new requests are refused.
func (k *work) isDraining() bool { return k.state.Load()&workDraining != 0 }

// isLeaving reports whether health says that the server is about to stop.
func (k *work) isLeaving() bool { return k.state.Load()&workLeaving != 0 }

func (k *work) counts() (requests, handlers int) {
	s := k.state.Load() & underWay
	return int(s % oneHandler), int(s / oneHandler)
}
