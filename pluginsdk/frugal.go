package pluginsdk

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A plugin runs beside a service, on the same cores, and what it takes from them
// the service does not have. So [Main] sets Go's runtime up for less CPU, where
// the operator has said nothing else.

// ballast makes the collector run at some 20 MiB of heap rather than at 4, which
// a plugin that copies batches has used up with every eighth of them. Its memory
// is never touched, so that it is none: unlike a higher GOGC, it changes nothing
// for a plugin whose heap is large.
var ballast []byte

// ballastBytes is the size of ballast. The collector runs at twice of what is
// alive, ballast with it.
const ballastBytes = 8 << 20

// frugal sets the runtime up. A limit on memory, which would count the ballast,
// speaks against it, and GOGC; GOMAXPROCS against the processors: in the
// environment, or set by the plugin's own code before [Main].
func frugal(env Env) *processors {
	if env.lookup("GOGC") == "" && env.lookup("GOMEMLIMIT") == "" && collectorIsDefault() {
		ballast = make([]byte, ballastBytes)
	}
	if env.lookup("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 || !procsAreDefault() {
		return nil
	}
	return newProcessors(usedCPU, func(many bool) {
		if many {
			runtime.SetDefaultGOMAXPROCS()
		} else {
			runtime.GOMAXPROCS(1)
		}
	})
}

// collectorIsDefault tells whether there is no limit on memory and GOGC is Go's
// own, which only setting it says.
func collectorIsDefault() bool {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return false
	}
	const own = 100
	set := debug.SetGCPercent(own)
	if set != own {
		debug.SetGCPercent(set)
	}
	return set == own
}

// procsAreDefault tells whether GOMAXPROCS is Go's own choice, and not one that the
// plugin's code has made before [Main].
func procsAreDefault() bool {
	set := runtime.GOMAXPROCS(0)
	runtime.SetDefaultGOMAXPROCS()
	if runtime.GOMAXPROCS(0) == set {
		return true
	}
	runtime.GOMAXPROCS(set)
	return false
}

// When processors changes its mind. It looks as calls begin, and now and then
// while one lasts; never in a plugin that has nothing to do.
const (
	// busyShare is the share of one processor at which all are to be used. It is
	// well below 1, for on a busy machine one gets less than it could use.
	busyShare = 0.5
	// calmShare is the share at which one will do again, where it was so for
	// calmLooks in a row.
	calmShare = 0.3
	calmLooks = 10
	// lookEvery is the shortest time between two looks, lookMost the longest
	// during a call.
	lookEvery = 100 * time.Millisecond
	lookMost  = time.Second
)

// processors chooses between one processor and all that there are, by how much
// the plugin has to do. On one, goroutines that hand work to each other wake no
// threads up, which is most of what passing a batch on costs. A nil one chooses
// nothing. Safe for concurrent use.
type processors struct {
	cpu func() time.Duration // used by the process so far
	use func(many bool)

	mu     sync.Mutex
	many   bool
	calm   int // looks in a row that saw little to do
	seen   time.Time
	used   time.Duration // at seen
	flying int           // calls
	wait   time.Duration // what timer was last set to
	timer  *time.Timer   // runs while calls last
}

// newProcessors begins with one.
func newProcessors(cpu func() time.Duration, use func(many bool)) *processors {
	p := &processors{cpu: cpu, use: use, seen: time.Now(), used: cpu()}
	p.timer = time.AfterFunc(lookMost, p.during)
	p.timer.Stop()
	use(false)
	return p
}

// call marks the beginning of a call, and gives what marks its end.
func (p *processors) call() (ended func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookLocked()
	p.flying++
	if p.flying == 1 {
		p.wait = lookEvery
		p.timer.Reset(p.wait)
	}
	return p.ended
}

func (p *processors) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
	if p.flying == 0 {
		p.timer.Stop()
	}
}

// during looks while calls last, more and more seldom: they may only wait for a
// back end.
func (p *processors) during() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flying == 0 {
		return
	}
	p.lookLocked()
	p.wait = min(2*p.wait, lookMost)
	p.timer.Reset(p.wait)
}

// lookLocked chooses by what was used since it last looked.
func (p *processors) lookLocked() {
	now := time.Now()
	passed := now.Sub(p.seen)
	if passed < lookEvery {
		return
	}
	used := p.cpu()
	share := float64(used-p.used) / float64(passed)
	p.seen, p.used = now, used
	p.calm++
	if share > calmShare {
		p.calm = 0
	}
	switch {
	case !p.many && share > busyShare, p.many && p.calm >= calmLooks:
		p.many = !p.many
		p.use(p.many)
	}
}

// usedCPU is what the process has used so far.
func usedCPU() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil { // it has no reason to fail
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
