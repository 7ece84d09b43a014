package measure

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
)

// While profiles are taken, one in so many contended mutexes is looked at, and
// one event for so many nanoseconds that goroutines were blocked.
const (
	mutexFraction = 10
	blockRate     = 10_000
)

// Profile takes four profiles of this process until stop, which writes them to
// the files prefix.cpu.pprof, .heap (with all that was allocated since the
// start), .block and .mutex. Without a prefix it does nothing.
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
			err = errors.Join(err, writeProfile(prefix, kind))
		}
		return err
	}, nil
}

func writeProfile(prefix, kind string) error {
	f, err := os.Create(prefix + "." + kind + ".pprof")
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
}

// ProfileName makes words to a part of a file's name: letters, digits, dashes.
func ProfileName(words ...string) string {
	fields := strings.FieldsFunc(strings.Join(words, " "), func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	return strings.Join(fields, "-")
}
