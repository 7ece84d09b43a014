package pluginsdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/localsocket"
	"github.com/servetrace/servetrace/internal/wire"
)

// Bounds of the time for the end of the plugin. A host may kill the plugin earlier.
const (
	// drainTimeout is the bound after SIGTERM. It is long enough for one Export call with
	// the host's default deadline.
	drainTimeout = 10 * time.Second
	// orphanTimeout is the bound after the end of the host. A plugin must end within two
	// seconds after its host.
	orphanTimeout = time.Second
)

// Run is [Main] without access to the process. It serves the plugin until the host
// releases it or ctx ends, drains as on SIGTERM, and returns nil after a clean end. It is
// safe for concurrent use. It returns [ErrNotHosted] if no host started the plugin, and
// another error if the plugin cannot be served or its exporter cannot be shut down. With
// --listen in Args it serves hosts that attach, until ctx ends, without a handshake.
func Run(ctx context.Context, env Env, spec Spec) error {
	_, err := run(ctx, env, spec)
	return err
}

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

// run is Run, and also returns the reason for the end.
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

// serve serves hosts on the socket until the plugin must end, and then ends the plugin. It
// calls announce when the server runs.
func (p *plugin) serve(ctx context.Context, socket *socket, eof <-chan struct{}, announce func() error) (ending, error) {
	server := newServer(p)
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- server.Serve(socket.listener) })
	defer serving.Wait() // end stops the server

	why, err := serverFailed, announce()
	if err == nil {
		why, err = p.wait(ctx, eof, served)
		p.log.Info("plugin stops", "reason", string(why))
	}
	return why, errors.Join(err, p.end(server, why))
}

// wait blocks until the plugin must end, and returns the reason.
func (p *plugin) wait(ctx context.Context, eof <-chan struct{}, served <-chan error) (ending, error) {
	select {
	case <-ctx.Done():
		return signalled, nil
	case <-p.released:
		return released, nil
	case <-p.env.orphaned.Done():
		return orphaned, nil
	case err := <-served:
		return serverFailed, fmt.Errorf("serve: %w", err)
	case <-eof:
		if p.calls.isStopping() {
			return hostDone, nil
		}
		return hostGone, nil
	}
}

// end refuses new calls, waits for calls in flight, shuts down the exporter and closes the
// server. Its time limit depends on the reason. If code of the author does not return when
// its context ends, it is abandoned, with the goroutines that wait for it.
func (p *plugin) end(server *grpc.Server, why ending) error {
	bound := cmp.Or(p.env.drainTimeout, drainTimeout)
	if p.listening != nil && p.listening.debug {
		bound = debugDrainTimeout
	}
	if why == hostGone || why == orphaned {
		bound = min(bound, orphanTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	// If the host ends while the plugin drains, less time is left.
	defer context.AfterFunc(p.env.orphaned, func() { time.AfterFunc(orphanTimeout, cancel) })()

	close(p.draining)
	answered, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(answered)
		server.GracefulStop()
	}()
	go func() { stopped <- p.stop(ctx) }()

	err, inTime := await(ctx, stopped)
	if !inTime {
		err = errors.New("the exporter's shutdown did not end in time")
	}
	select {
	case <-answered:
	case <-ctx.Done():
	}
	server.Stop()
	cancel()
	await(ctx, answered)
	return err
}

// deafGrace is the time that a call has to return after the end of its context.
const deafGrace = 100 * time.Millisecond

// await returns the value that c delivers before ctx ends, or within deafGrace after that.
func await[T any](ctx context.Context, c <-chan T) (T, bool) {
	select {
	case v := <-c:
		return v, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(deafGrace)
	defer timer.Stop()
	select {
	case v := <-c:
		return v, true
	case <-timer.C:
		var none T
		return none, false
	}
}

func hosted(env Env) bool { return env.lookup(wire.CookieKey) == wire.CookieValue }

// checkHost returns an error for a host that cannot work with this plugin, and warns about
// a host that will refuse the plugin.
func checkHost(env Env, log *slog.Logger) error {
	if env.lookup(wire.EnvClientCert) != "" {
		return fmt.Errorf("host asks for AutoMTLS (%s), which a plugin on a private Unix socket does not speak: switch it off in the host", wire.EnvClientCert)
	}
	if env.Handshake == nil {
		return errors.New("no writer for the handshake: set Env.Handshake")
	}
	versions := env.lookup(wire.EnvProtocolVersions)
	own := fmt.Sprint(wire.ProtocolVersion)
	if versions != "" && !slices.Contains(strings.Split(versions, ","), own) {
		// Like go-plugin's server, answer with the plugin's own version. Then the host can
		// report both versions.
		log.Warn("host and plugin have no protocol version in common: build the plugin with a matching SDK",
			"host", versions, "plugin", own)
	}
	return nil
}

// shake writes the handshake line in go-plugin's form: core version, protocol version,
// network, address, protocol, and an empty certificate.
func shake(env Env, s *socket) error {
	line := fmt.Sprintf("%d|%d|unix|%s|grpc|", wire.CoreProtocolVersion, wire.ProtocolVersion, s.path)
	if env.lookup(wire.EnvMultiplex) != "" {
		// The seventh field reports whether the broker's servers can share the socket. Older
		// hosts cannot read this field. This plugin has no broker.
		line += "|false"
	}
	if _, err := io.WriteString(env.Handshake, line+"\n"); err != nil {
		return fmt.Errorf("write handshake: %w", err)
	}
	if env.shaken != nil {
		env.shaken()
	}
	return nil
}

// watchStdin returns a channel that is closed when r ends, and a function that stops the
// watch. If r is not an io.Closer, the goroutine that reads r remains until r ends.
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

type socket struct {
	listener *net.UnixListener
	path     string
	// folder is removed at the end; empty if the host made it.
	folder string
}

// listen opens a socket in dir, or in a new private folder if dir is empty.
func listen(dir string) (*socket, error) {
	s := &socket{}
	if dir == "" {
		folder, err := os.MkdirTemp("", "servetrace-plugin-") // mode 0700
		if err != nil {
			return nil, fmt.Errorf("make a folder for the socket: %w", err)
		}
		s.folder, dir = folder, folder
	}
	if err := s.open(dir); err != nil {
		s.remove()
		return nil, fmt.Errorf("open a socket in %q: %w", dir, err)
	}
	return s, nil
}

// open listens on a unique name in dir.
func (s *socket) open(dir string) error {
	file, err := os.CreateTemp(dir, "plugin")
	if err != nil {
		return err
	}
	s.path = filepath.Clean(file.Name())
	if err := errors.Join(file.Close(), os.Remove(s.path)); err != nil {
		return err
	}
	if len(s.path) > localsocket.MaxPath {
		return fmt.Errorf("path %q has %d bytes, the system takes %d: use a shorter folder", s.path, len(s.path), localsocket.MaxPath)
	}
	s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return err
	}
	return os.Chmod(s.path, 0o600)
}

// remove closes the socket, which unlinks it, and removes its folder.
func (s *socket) remove() {
	if s.listener != nil {
		_ = s.listener.Close() // fails if the server has already closed it
	}
	if s.folder != "" {
		_ = os.RemoveAll(s.folder)
	}
}
