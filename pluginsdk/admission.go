package pluginsdk

import (
	"fmt"
	"sync"

	"github.com/servetrace/servetrace/internal/wire"
)

// state is a stage in the life of a plugin. A later state has a higher value.
type state int

const (
	described   state = iota // waits for Configure
	configuring              // constructors run
	refused                  // a constructor failed
	ready                    // takes batches
	stopping                 // lets calls finish, or has ended
)

// String names the state for errors.
func (s state) String() string {
	return [...]string{"not configured", "being configured", "refused its configuration", "ready", "stopping"}[s]
}

// codeUnready is the code of the final answer to a host that calls methods in the wrong
// order.
const codeUnready = "FAILED_PRECONDITION"

// codeUnimplemented is the code of the final answer to a call that this kind of plugin
// does not serve.
const codeUnimplemented = "UNIMPLEMENTED"

// admission admits a call if the state is right, and counts the calls in flight. Safe
// for concurrent use.
type admission struct {
	mu       sync.Mutex
	state    state
	pipeline *pipeline     // set once, by Configure
	inFlight int           // calls between enter and leave
	empty    chan struct{} // closed when state is stopping and inFlight is zero
}

func newAdmission() *admission { return &admission{empty: make(chan struct{})} }

// enter admits a call in the state want, and changes the state to next. The caller must
// call leave.
func (a *admission) enter(want, next state) (*pipeline, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == stopping {
		// The host may send the batch to another process.
		return nil, &wire.Error{Code: wire.CodeRetry, Err: errStopping}
	}
	if a.state != want {
		return nil, &wire.Error{Code: codeUnready, Final: true, Err: fmt.Errorf("plugin is %v, want %v", a.state, want)}
	}
	a.state = next
	a.inFlight++
	return a.pipeline, nil
}

func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight--
	if a.inFlight == 0 && a.state == stopping {
		close(a.empty)
	}
}

// configured ends Configure. built is nil if a constructor has failed.
func (a *admission) configured(built *pipeline) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pipeline = built
	if a.state != configuring { // stop was called meanwhile, so built is not used
		return
	}
	a.state = ready
	if built == nil {
		a.state = refused
	}
}

func (a *admission) isStopping() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == stopping
}

// stop refuses further calls. It returns true in the first call.
func (a *admission) stop() (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == stopping {
		return false
	}
	a.state = stopping
	if a.inFlight == 0 {
		close(a.empty)
	}
	return true
}

// remaining returns the pipeline, or nil, and the number of calls in flight.
func (a *admission) remaining() (*pipeline, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pipeline, a.inFlight
}
