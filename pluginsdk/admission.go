package pluginsdk

import (
	"fmt"
	"sync"

	"github.com/servetrace/servetrace/internal/wire"
)

// state is a stage in the life of a plugin. A plugin never returns to a state with a
// lower value.
type state int

const (
	described   state = iota // Configure was not called yet
	configuring              // the constructors are running
	refused                  // a constructor has failed, so batches are refused
	ready                    // batches are accepted
	stopping                 // calls are refused; calls in flight may still finish
)

// String returns the state in words, for errors.
func (s state) String() string {
	return [...]string{"not configured", "being configured", "refused its configuration", "ready", "stopping"}[s]
}

// codeUnready is the gRPC code of the answer to a host that calls methods in the wrong
// order. The host must not repeat the call.
const codeUnready = "FAILED_PRECONDITION"

// codeUnimplemented is the gRPC code of the answer to a call that this plugin does not
// support, such as Export of a processor plugin. The host must not repeat the call.
const codeUnimplemented = "UNIMPLEMENTED"

// admission holds a plugin's state. It admits a call only in the right state, and counts
// the calls in flight. It is safe for concurrent use.
type admission struct {
	mu       sync.Mutex
	state    state
	pipeline *pipeline     // set once, by configured; nil before, and if a constructor has failed
	inFlight int           // number of calls between enter and leave
	empty    chan struct{} // closed when state is stopping and inFlight is zero
}

func newAdmission() *admission { return &admission{empty: make(chan struct{})} }

// enter admits a call if the state is want, and changes the state to next. Otherwise it
// returns an error for the host. After the call, the caller must call leave.
func (a *admission) enter(want, next state) (*pipeline, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == stopping {
		// The error is retryable, because the host may send the batch to another process.
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

// configured ends the state configuring, and stores the pipeline. built is nil if a
// constructor has failed.
func (a *admission) configured(built *pipeline) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pipeline = built
	if a.state != configuring { // stop was called meanwhile, and it will shut down the pipeline
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

// stop refuses further calls. It returns true if it was not called before.
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

// remaining returns the pipeline, and the number of calls in flight. The pipeline is nil
// if no constructors have run, or if a constructor has failed.
func (a *admission) remaining() (*pipeline, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pipeline, a.inFlight
}
