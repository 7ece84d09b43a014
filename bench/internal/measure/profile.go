package measure

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// The profiles record one of mutexFraction contended mutexes, and one event for
// each blockRate nanoseconds that goroutines were blocked.
const (
	mutexFraction = 10
	blockRate     = 10_000
)

// Profile profiles this process until stop, which writes the files
// prefix.cpu.pprof, .heap (with all allocations since the start), .block and
// .mutex. Without a prefix it does nothing.
func Profile(prefix string) (stop func() error, err error) {
	if prefix == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(prefix + ".cpu.pprof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(blockRate)
	return func() error {
		pprof.StopCPUProfile()
		runtime.SetMutexProfileFraction(0)
		runtime.SetBlockProfileRate(0)
		err := cpu.Close()
		for _, kind := range []string{"heap", "block", "mutex"} {
			f, failed := os.Create(prefix + "." + kind + ".pprof")
			if failed == nil {
				failed = errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
			}
			err = errors.Join(err, failed)
		}
		return err
	}, nil
}
