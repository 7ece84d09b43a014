package callclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/discovery"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/tracing"
)

// Config describes a Set.
type Config struct {
	Pool       *Pool
	Deployment *router.Deployment
	Target     string            // the text from which Source was made, for messages
	Source     discovery.Source  // finds the processes
	Provider   *tracing.Provider // propagates the trace of a call
	Errors     *callwire.Errors  // encodes and decodes errors
	Log        *slog.Logger
	// Settings are the settings of the deployment. Of these only MaxQueued has an effect,
	// because the other processes decide the numbers of their replicas and calls.
	Settings router.Settings
	// Changed is called after the state of a process has changed. No lock is held.
	Changed func()
}

// Set has the other processes that run a deployment. Its methods are safe for concurrent
// use.
type Set struct {
	cfg       Config
	app, name string

	ctx  context.Context    // context of the goroutines
	stop context.CancelFunc // ends ctx
	runs sync.WaitGroup     // waits for the goroutines
	over chan struct{}      // closed when the set has stopped and all its goroutines have ended

	mu       sync.Mutex
	started  bool             // Start was called
	stopping bool             // Stop was called
	everRan  bool             // some process has taken calls since Start
	settings router.Settings  // the settings of the deployment
	peers    map[string]*peer // the processes, by address
	fault    error            // error of the last search for processes; nil after a success
}

var _ router.Replicas = (*Set)(nil)

// New returns a Set without processes. Start makes it look for them.
func New(c Config) *Set {
	s := &Set{
		cfg: c, app: c.Deployment.App, name: c.Deployment.Name,
		over: make(chan struct{}), settings: c.Settings, peers: map[string]*peer{},
	}
	s.cfg.Log = c.Log.With("app", s.app, "deployment", s.name)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Start implements [router.Replicas].
func (s *Set) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopping {
		return
	}
	s.started = true
	s.runs.Go(func() { s.cfg.Source.Watch(s.ctx, s.update, s.setFault) })
}

// update replaces the processes of the set by the endpoints of list that are ready. If no
// endpoint is ready, it takes the endpoints that still answer calls while they terminate.
func (s *Set) update(list []discovery.Endpoint) {
	ready := slices.ContainsFunc(list, func(e discovery.Endpoint) bool { return e.Ready })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	wanted := map[string]bool{}
	for _, e := range list {
		if !e.Ready && (ready || !e.Serving) {
			continue
		}
		wanted[e.Addr] = true
		if s.peers[e.Addr] == nil {
			p := newPeer(s, e.Addr)
			s.peers[e.Addr] = p
			s.runs.Go(p.run)
		}
	}
	for addr, p := range s.peers {
		if !wanted[addr] {
			delete(s.peers, addr)
			p.stop()
		}
	}
}

// setFault records the result of a search for processes.
func (s *Set) setFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// Stop implements [router.Replicas].
func (s *Set) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	s.stopping = true
	s.stop()
	go func() { // ends when the other goroutines of the set have ended
		s.runs.Wait()
		close(s.over)
	}()
}

// Wait implements [router.Replicas].
func (s *Set) Wait(_, late context.Context) error {
	select {
	case <-s.over:
		return nil
	case <-late.Done():
		return fmt.Errorf("stop deployment %q of app %q: its calls to other processes have not ended", s.name, s.app)
	}
}

// Declare implements [router.Replicas]. It applies only the limit of the queue, because the
// queue is in this process and the replicas are not.
func (s *Set) Declare(_ context.Context, next router.Settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = next
	s.cfg.Deployment.SetMaxQueued(next.MaxQueued)
	return nil
}

var errElsewhere = errors.New("other processes run the deployment; reconfigure it there")

// Reconfigure implements [router.Replicas].
func (s *Set) Reconfigure(context.Context, string) error { return errElsewhere }

// Unready implements [router.Replicas]. After some process has taken calls, the set counts as
// ready for good. Otherwise a pod would be removed from its Service whenever the pods that
// it calls are replaced.
func (s *Set) Unready() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.everRan {
		return ""
	}
	return fmt.Sprintf("Deployment(name='%s', app='%s') has no process at %s that takes requests yet.", s.name, s.app, s.cfg.Target)
}

// Status implements [router.Replicas]. Its list of replicas has the processes instead, with
// their addresses as ids.
func (s *Set) Status() router.DeploymentStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	queued, _ := s.cfg.Deployment.Queue()
	d := router.DeploymentStatus{
		App: s.app, Name: s.name, Target: s.cfg.Target,
		MaxQueuedRequests: s.settings.MaxQueued, Queued: queued,
		Replicas: make([]router.ReplicaStatus, 0, len(s.peers)),
	}
	taking, fault := 0, s.fault
	if fault != nil {
		fault = fmt.Errorf("search for processes: %w", fault)
	}
	for _, addr := range slices.Sorted(maps.Keys(s.peers)) {
		p := s.peers[addr]
		r := p.statusLocked()
		d.Replicas = append(d.Replicas, r)
		d.MaxOngoingRequests += p.capacity
		if r.State == router.ReplicaRunning {
			taking++
		} else if p.fault != nil {
			fault = p.fault
		}
	}
	d.NumReplicas = taking
	switch {
	case s.stopping:
		d.State = router.DeploymentStopping
	case s.goneLocked() != nil:
		d.State, fault = router.DeploymentUnavailable, s.goneLocked()
	case taking > 0:
		d.State = router.DeploymentHealthy
	case fault != nil || s.everRan:
		d.State = router.DeploymentUnhealthy
	default:
		d.State = router.DeploymentUpdating
	}
	if fault != nil {
		d.Error = fault.Error()
	}
	return d
}

// goneLocked returns the error of the deployment if it is unavailable in all processes,
// otherwise nil.
func (s *Set) goneLocked() error {
	var gone error
	for _, p := range s.peers {
		if p.unavailable == nil {
			return nil
		}
		gone = p.unavailable
	}
	return gone
}

// changedLocked makes the deployment in this process refuse calls while it is unavailable in
// all other processes. It must be called after each change of a process's state.
func (s *Set) changedLocked() {
	s.cfg.Deployment.Fail(s.goneLocked())
}

// peer is one process of a set.
type peer struct {
	set    *Set
	addr   string
	conn   *conn              // the connection from the pool; set by run
	ctx    context.Context    // ends when run must end
	stop   context.CancelFunc // ends ctx
	member *router.Membership // the process as the router sees it; nil before the first report

	// The set's mu guards the fields below.
	state       router.ReplicaState
	since       time.Time // time of the last change of state
	capacity    int       // number of calls that the process runs at the same time; 0 if it takes none
	models      []string  // ids of the multiplexed models that the process has loaded
	unavailable error     // reason for which the replicas of the process do not start; nil if they do
	fault       error     // reason for which the process cannot be reached; nil if it can
}

func newPeer(s *Set, addr string) *peer {
	p := &peer{set: s, addr: addr, state: router.ReplicaStarting, since: time.Now()}
	p.ctx, p.stop = context.WithCancel(s.ctx)
	return p
}

func (p *peer) statusLocked() router.ReplicaStatus {
	r := router.ReplicaStatus{ID: p.addr, State: p.state, Since: p.since, Models: p.models}
	if p.member != nil {
		r.Ongoing = p.member.Ongoing()
	}
	return r
}

// The bounds of the pause between two watches of a process, which doubles after each watch
// without a report.
const (
	leastPause = 100 * time.Millisecond
	mostPause  = 2 * time.Second
)

// run watches the process, and keeps its state at the router up to date. After stop it
// removes the process from the router, and waits for the calls that are under way.
func (p *peer) run() {
	defer p.stop()
	var err error
	if p.conn, err = p.set.cfg.Pool.open(p.addr); err != nil {
		p.failed(err)
		<-p.ctx.Done()
		return
	}
	defer p.set.cfg.Pool.release(p.addr, p.conn)
	pause := leastPause
	for p.ctx.Err() == nil {
		seen, err := p.watch()
		if seen {
			pause = leastPause
		}
		p.failed(err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, mostPause)
	}
	if p.member != nil {
		<-p.member.Leave()
	}
}

// watch applies the states that the process reports. It returns when the stream of reports
// ends or fails. seen is true if there was a report.
func (p *peer) watch() (seen bool, err error) {
	stream, err := p.conn.calls.Watch(p.ctx, &servev1.WatchRequest{App: p.set.app, Deployment: p.set.name}, grpc.WaitForReady(false))
	if err != nil {
		return false, err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return seen, err
		}
		seen = true
		p.apply(m)
	}
}

// apply records a state that the process has reported, and passes it to the router.
func (p *peer) apply(m *servev1.WatchResponse) {
	s := p.set
	s.mu.Lock()
	defer s.unlock()
	p.capacity, p.models, p.unavailable, p.fault = int(m.GetCapacity()), m.GetModels(), nil, nil
	if gone := m.GetUnavailable(); gone != nil {
		p.unavailable = callwire.DecodeUnavailable(gone)
	}
	if m.GetStopping() {
		p.capacity = 0
		p.conn.end(true)
	}
	state := router.ReplicaStarting
	switch {
	case m.GetStopping():
		state = router.ReplicaStopping
	case p.capacity > 0:
		state = router.ReplicaRunning
		s.everRan = true
	}
	p.enterLocked(state)
	if p.member == nil {
		p.member = s.cfg.Deployment.Join(p)
	}
	p.member.SetState(p.capacity, p.models)
	s.changedLocked()
}

// failed makes the router send no calls to the process until the process reports a state
// again. err is the error of the watch.
func (p *peer) failed(err error) {
	if p.conn != nil {
		p.conn.end(false)
	}
	s := p.set
	if s.cfg.Pool.settings.Credentials.Info().SecurityProtocol == "insecure" && strings.Contains(fmt.Sprint(err), "preface") { // a server with TLS does not send the preface of HTTP/2
		err = status.Error(status.Code(err), status.Convert(err).Message()+
			"; if the process uses TLS, set SERVE_CALL_TLS_CERT, SERVE_CALL_TLS_KEY and SERVE_CALL_TLS_CA here, too")
	}
	s.mu.Lock()
	defer s.unlock()
	if p.ctx.Err() != nil {
		return
	}
	switch {
	case p.fault != nil:
	case p.state == router.ReplicaStopping && errors.Is(err, io.EOF):
		s.cfg.Log.Info("process has stopped", "address", p.addr)
	default:
		s.cfg.Log.Warn("process takes no calls", "address", p.addr, "error", status.Convert(err).Message())
	}
	p.capacity, p.unavailable, p.fault = 0, nil, err
	p.enterLocked(router.ReplicaStarting)
	if p.member != nil {
		p.member.SetState(0, nil)
	}
	s.changedLocked()
}

// enterLocked changes the state of the process, and logs the change.
func (p *peer) enterLocked(state router.ReplicaState) {
	if p.state == state {
		return
	}
	p.state, p.since = state, time.Now()
	p.set.cfg.Log.Info("process of a deployment", "address", p.addr, "state", state.String())
}

func (s *Set) unlock() {
	s.mu.Unlock()
	s.cfg.Changed()
}
