package testplugin

import (
	"context"
	"os"
	"syscall"

	"github.com/servetrace/servetrace/pluginsdk"
)

// PoisonSpan is the name of the span at which a plugin of mode "poison" fails: its
// batch is never delivered.
const PoisonSpan = "poison"

// poison is a good plugin until it gets a batch with PoisonSpan. Then it fails in the
// way of how:
//
//   - panic: it panics in a goroutine that no library can recover
//   - exit: it exits with status 7
//   - segv: it is killed by SIGSEGV, like C code
//   - freeze: it does not answer any more
//   - spin: the call uses a CPU forever, and other calls succeed
func poison(how string) {
	exporter(func(ctx context.Context, b *pluginsdk.Batch) error {
		for span := range b.Spans() {
			if span.Name() == PoisonSpan {
				die(how)
			}
		}
		return record(ctx, b)
	})
}

func die(how string) {
	switch how {
	case "panic":
		go func() { panic("testplugin: poison") }()
	case "exit":
		say(os.Stderr, "no bytes of mine\n")
		os.Exit(7)
	case "segv":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
	case "freeze":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "spin":
		for spun := uint64(0); ; spun++ {
		}
	}
	select {}
}
