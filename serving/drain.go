package serving

import (
	"errors"
	"sync"
	"sync/atomic"
)

// work counts what is under way, and admits or refuses under the same lock: no
// request slips in once draining has begun.
type work struct {
	idle    chan struct{} // closed when draining, and nothing is under way
	leaving atomic.Bool   // health says so; requests are still taken until draining

	mu       sync.Mutex
	started  bool
	draining bool
	requests int // in the proxy
	handlers int // user code that runs for a request or a call; it may outlive its request
}

func newWork() *work {
	return &work{idle: make(chan struct{})}
}

// admit counts a request in, unless the server drains.
func (k *work) admit() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.draining {
		return false
	}
	k.requests++
	return true
}

func (k *work) requestDone() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests--
	k.checkLocked()
}

var errNotStarted = errors.New("its server has not started: call Server.Start first")

// start lets calls by handle in.
func (k *work) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.started = true
}

// admitCall counts in a call by handle, which handlerDone counts out. One from
// inside user code that is counted itself is admitted whatever the state.
// Otherwise it fails with errNotStarted or ErrShuttingDown.
func (k *work) admitCall(inside bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.draining && (!inside || k.requests == 0 && k.handlers == 0): // then who called has ended meanwhile
		return ErrShuttingDown
	case !k.started && !inside:
		return errNotStarted
	}
	k.handlers++
	return nil
}

// handlerStarts is called by an admitted request only.
func (k *work) handlerStarts() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.handlers++
}

func (k *work) handlerDone() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.handlers--
	k.checkLocked()
}

// leave has health say that the server is about to stop.
func (k *work) leave() { k.leaving.Store(true) }

// drain refuses from now on. Call it once, after leave.
func (k *work) drain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.draining = true
	k.checkLocked()
}

// checkLocked closes idle in its time, once: only requests and handlers start
// handlers, and no request is admitted any more, so that nothing follows when
// both counts are zero.
func (k *work) checkLocked() {
	if k.draining && k.requests == 0 && k.handlers == 0 {
		close(k.idle)
	}
}

// isDraining says whether new requests are refused.
func (k *work) isDraining() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.draining
}

// isLeaving says whether new requests had better go elsewhere, which health tells.
func (k *work) isLeaving() bool { return k.leaving.Load() }

func (k *work) counts() (requests, handlers int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.requests, k.handlers
}
