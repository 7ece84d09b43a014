package pluginsdk

import (
	"cmp"
	"context"
	"io"

	"github.com/servetrace/servetrace/internal/wire"
)

// Run is [Main] for a test or an embedding program: it takes everything from env, and does
// not touch signals, descriptors or variables of the process. It blocks until the host
// ends the plugin or ctx ends. Then it finishes the calls in flight, shuts the exporter
// down, and returns nil after a clean end. Run is safe for concurrent use.
//
// It returns [ErrNotHosted] if no host started the plugin, and another error if the plugin
// cannot be served or its exporter cannot be shut down. With --listen in env.Args, Run
// serves all hosts that attach, until ctx ends.
func Run(ctx context.Context, env Env, spec Spec) error {
	_, err := run(ctx, env, spec)
	return err
}

// ending is the reason for which a plugin ends, as text for the log.
type ending string

const (
	byHand       ending = "no host"
	signalled    ending = "asked to end"
	released     ending = "released by the host"
	hostDone     ending = "host closed standard input after shutdown"
	hostGone     ending = "host closed standard input without shutdown"
	orphaned     ending = "parent process has ended"
	serverFailed ending = "server failed"
)

// run does the work of Run. It also returns the reason for which the plugin ended.
func run(ctx context.Context, env Env, spec Spec) (ending, error) {
	env.Stdout, env.Stderr = sharedWriters(env.Stdout, env.Stderr)
	env.orphaned = cmp.Or(env.orphaned, context.Background())
	if err := spec.validate(); err != nil {
		return byHand, err
	}
	if wantsListen(env) && flagOf(env) == "" {
		return serveListening(ctx, env, spec)
	}
	if handled, err := answerByHand(env, spec); handled {
		return byHand, err
	}
	log := newLogger(cmp.Or(env.Log, env.Stderr))
	if err := checkHost(env, log); err != nil {
		return serverFailed, err
	}
	socket, err := listen(env.lookup(wire.EnvSocketDir))
	if err != nil {
		return serverFailed, err
	}
	defer socket.remove()

	eof, unwatch := watchStdin(env.Stdin)
	defer unwatch()
	return newPlugin(env, spec, log).serve(ctx, socket, eof, func() error { return shake(env, socket) })
}

// watchStdin reads r in a goroutine, and closes eof when r ends. unwatch ends the
// goroutine by closing r. If r is not an io.Closer, the goroutine lives until r ends.
func watchStdin(r io.Reader) (eof <-chan struct{}, unwatch func()) {
	if r == nil {
		return nil, func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, r) // an error ends the watch like EOF
	}()
	return ended, func() {
		if c, ok := r.(io.Closer); ok {
			_ = c.Close()
			<-ended
		}
	}
}
