package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/servetrace/servetrace/internal/wire"
)

// A hung plugin is detected in two ways. After a call without an answer by its deadline,
// one health check without an answer is enough. An idle plugin is checked every
// heartbeatEvery, and counts as hung after mostMisses missed answers. A hung plugin is made
// to print its stacks, and is killed with its process group. For an attached plugin, only
// the connection is closed.
const (
	heartbeatEvery = 10 * time.Second
	HealthTimeout  = 2 * time.Second // bounds one health check
	mostMisses     = 3
	// EndGrace bounds the time in which a process must end after it has announced its
	// end, and answered its last call.
	EndGrace = 2 * time.Second
	// dumpTimeout bounds the stack dump of a hung plugin, and killWait the time for its end
	// after the kill.
	dumpTimeout = time.Second
	killWait    = time.Second
)

// probe has the results of the health checks on one connection. Safe for concurrent
// use.
type probe struct {
	checking chan struct{} // a semaphore of size 1, held during a health check

	mu     sync.Mutex
	last   time.Time // time of the last answer to any call
	misses int       // number of health checks without an answer since then
}

func newProbe() probe { return probe{checking: make(chan struct{}, 1), last: time.Now()} }

// quiet reports whether the plugin has not answered any call for heartbeatEvery.
func (p *probe) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.last) >= heartbeatEvery
}

func (p *probe) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.misses = time.Now(), 0
}

// missed adds n to the number of missed answers, and reports whether the plugin counts
// as hung.
func (p *probe) missed(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses += n
	return p.misses >= mostMisses
}

func (s *sender) heard() {
	s.probe.heard()
	s.x.status.answers()
}

// checkHealth makes a health check. If there is no answer, it adds misses to the missed
// answers, and kills the plugin if it is hung. It also kills a plugin that refuses the
// check and does not end. checkHealth blocks until the plugin has answered, the check
// has failed, or the plugin has ended. If another check is running, it waits for the end
// of that check, and then makes its own. The answer to the other check may be older than
// the caller's call.
func (s *sender) checkHealth(ctx context.Context, misses int) {
	select {
	case s.probe.checking <- struct{}{}:
		defer func() { <-s.probe.checking }()
	case <-ctx.Done():
		return
	}
	if ctx.Err() != nil || s.gone() {
		return
	}
	refused, err := s.callHealth(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case refused || s.peer.Leaving():
		// After SIGTERM a process accepts no new calls, but may answer its last calls.
		s.calls.wait(ctx, s.x.sup.cfg.ExportTimeout)
		select {
		case <-s.peer.Done():
		case <-ctx.Done():
		case <-time.After(EndGrace):
		}
	case !s.probe.missed(misses):
		s.x.status.missed(err)
		return
	}
	if ctx.Err() == nil && !s.gone() {
		s.killHung(ctx, err)
	}
}

// callHealth calls the plugin's health service. An error from the plugin itself counts
// as an answer, because a plugin must not be killed for an error of its back end.
// refused reports that there is no connection, or that the process accepts no more
// calls.
func (s *sender) callHealth(ctx context.Context) (refused bool, err error) {
	call, cancel := context.WithTimeout(ctx, HealthTimeout)
	defer cancel()
	_, err = healthpb.NewHealthClient(s.conn).Check(call, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	said := wire.FromStatus(err)
	switch {
	case err == nil, call.Err() == nil && said.Code != wire.CodeRetry:
		s.heard()
		return false, nil
	case call.Err() == nil:
		return true, said
	}
	return false, fmt.Errorf("no answer to a health check within %v", HealthTimeout)
}

// killHung makes a hung plugin print its stacks, and kills it. A plugin that was only slow
// may still answer calls meanwhile. killHung returns when the plugin has ended, or after
// killWait.
func (s *sender) killHung(ctx context.Context, err error) {
	s.x.log.Warn(policyOf(s.x.Entry).hung, "error", err) // the end of the plugin is logged as an error
	dump, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	s.peer.Dump(dump)
	s.kill("it answered neither calls nor health checks: " + err.Error())
	select {
	case <-s.peer.Done():
	case <-ctx.Done():
	case <-time.After(killWait):
	}
}
