package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/servetrace/servetrace/internal/wire"
)

// A plugin that does not answer is found in two ways. If a call has no answer by its
// deadline, the host makes one health check; without an answer to it, the plugin is
// hung. The host checks an idle plugin every heartbeatEvery; the plugin is hung after
// mostMisses missed answers. The host dumps the stacks of a hung plugin and kills its
// process group. It closes the connection to a hung attached plugin.
const (
	heartbeatEvery = 10 * time.Second
	HealthTimeout  = 2 * time.Second
	mostMisses     = 3
	// EndGrace bounds the end of a process that takes no more calls and has answered
	// its last call.
	EndGrace = 2 * time.Second
	// dumpTimeout bounds the stack dump of a hung plugin, and killWait its end.
	dumpTimeout = time.Second
	killWait    = time.Second
)

// probe stores the health of one connection. Safe for concurrent use.
type probe struct {
	checking chan struct{} // a semaphore of one, held during a health check

	mu     sync.Mutex
	last   time.Time // when the plugin answered anything last
	misses int       // health checks without an answer since then
}

func newProbe() probe { return probe{checking: make(chan struct{}, 1), last: time.Now()} }

// quiet reports whether the plugin has answered nothing for heartbeatEvery.
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

// missed counts missed answers and reports whether the plugin is hung.
func (p *probe) missed(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses += n
	return p.misses >= mostMisses
}

// heard is called when the plugin has answered anything.
func (s *sender) heard() {
	s.probe.heard()
	s.x.status.answers()
}

// ask makes a health check. A failed check counts as the given number of missed
// answers. It blocks until the plugin has answered, the check has failed, or the plugin
// has ended. It waits while another check runs, because the answer of that check may be
// older than this caller's failed call.
func (s *sender) ask(ctx context.Context, misses int) {
	select {
	case s.probe.checking <- struct{}{}:
		defer func() { <-s.probe.checking }()
	case <-ctx.Done():
		return
	}
	if ctx.Err() != nil || s.lost() {
		return
	}
	refused, err := s.health(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case refused || s.peer.Leaving():
		// After SIGTERM a process takes no new calls, but may still answer its last
		// calls.
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
	if ctx.Err() == nil && !s.lost() {
		s.putDown(ctx, err)
	}
}

// health makes a health check. An error from the plugin itself counts as an answer: a
// slow or unreachable back end is no reason to kill a plugin. refused is true if there
// is no connection, or if the process takes no more calls.
func (s *sender) health(ctx context.Context) (refused bool, err error) {
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

// putDown makes a hung plugin dump its stacks, and kills it. It returns when the plugin
// has ended, or cannot be ended.
func (s *sender) putDown(ctx context.Context, err error) {
	s.x.log.Warn(mannerOf(s.x.Entry).hung, "error", err) // its end is the error
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
