package testplugin

import (
	"context"
	"os"
	"syscall"

	"github.com/servetrace/servetrace/pluginsdk"
)

// PoisonSpan is the name of the span that a plugin of mode "poison" can not
// bear: the batch that has it is never delivered.
const PoisonSpan = "poison"

// poison is a good plugin until it gets a batch with PoisonSpan. Then, by how:
//
//   - panic: it panics where no library can recover it
//   - exit: it ends, with status 7
//   - segv: it is killed by SIGSEGV, as code in C would be
//   - freeze: it answers nothing any more
//   - spin: that call burns a processor for ever, and all else goes on
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
