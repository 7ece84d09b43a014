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

	"github.com/servetrace/servetrace/internal/wire"
)

// How long the end may take. A host that is in more of a hurry kills.
const (
	// drainTimeout is that of SIGTERM: one Export call at the host's default
	// deadline fits in.
	drainTimeout = 10 * time.Second
	// orphanTimeout is what is left when nobody hears the answers any more. A
	// plugin must be gone two seconds after its host.
	orphanTimeout = time.Second
)

// Run is [Main] without the process: it serves the plugin until the host is
// done with it or ctx ends, drains as on SIGTERM, and returns nil after a
// clean end. Several may run at once. It returns [ErrNotHosted] where Environ
// lacks the handshake's variable, and any other error where the plugin could
// not be served, or its exporter not be shut down. With --listen in Args it
// serves hosts that attach, until ctx ends, and needs no handshake.
func Run(ctx context.Context, env Env, spec Spec) error {
	_, err := run(ctx, env, spec)
	return err
}

// ending is why a plugin ended.
type ending string

const (
	byHand     ending = "no host"
	signalled  ending = "asked to end"
	released   ending = "released by the host"
	hostDone   ending = "host closed standard input after shutdown"
	hostGone   ending = "host closed standard input without shutdown"
	orphaned   ending = "parent process is gone"
	serverDied ending = "server failed"
)

// run is Run, and tells why it ended.
func run(ctx context.Context, env Env, spec Spec) (ending, error) {
	env.Stdout, env.Stderr = sharedWriters(env.Stdout, env.Stderr)
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
		return serverDied, err
	}
	socket, err := listen(env.lookup(wire.EnvSocketDir))
	if err != nil {
		return serverDied, err
	}
	defer socket.remove()

	p := newPlugin(env, spec, log)
	server := newServer(p)
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- server.Serve(socket.listener) })
	defer serving.Wait() // end stops the server
	eof, unwatch := watchStdin(env.Stdin)
	defer unwatch()

	why, err := serverDied, shake(env, socket)
	if err == nil {
		why, err = p.wait(ctx, eof, served)
		log.Info("plugin stops", "reason", string(why))
	}
	return why, errors.Join(err, p.end(server, why))
}

// wait blocks until there is a reason to end.
func (p *plugin) wait(ctx context.Context, eof <-chan struct{}, served <-chan error) (ending, error) {
	select {
	case <-ctx.Done():
		return signalled, nil
	case <-p.released:
		return released, nil
	case <-p.env.orphaned:
		return orphaned, nil
	case err := <-served:
		return serverDied, fmt.Errorf("serve: %w", err)
	case <-eof:
		if p.calls.isStopping() {
			return hostDone, nil
		}
		return hostGone, nil
	}
}

// end refuses new calls, lets those in flight finish, shuts the exporter down
// and closes the server, within a bound that depends on who still listens. An
// author's code that does not return when its context ends is left behind, with
// the goroutines that wait for it: the process ends with or without it.
func (p *plugin) end(server *grpc.Server, why ending) error {
	bound := cmp.Or(p.env.drainTimeout, drainTimeout)
	if p.listening != nil && p.listening.debug {
		bound = debugDrainTimeout
	}
	if why == hostGone || why == orphaned {
		bound = min(bound, orphanTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { p.hurryIfOrphaned(ctx, cancel) })

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

// deafGrace is how long after the end of its context a call may take to return.
const deafGrace = 100 * time.Millisecond

// await gives what comes from c before ctx ends, or a little later.
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

// hurryIfOrphaned shortens the end when the host goes while the plugin drains.
func (p *plugin) hurryIfOrphaned(ctx context.Context, cancel context.CancelFunc) {
	select {
	case <-ctx.Done():
		return
	case <-p.env.orphaned:
	}
	timer := time.AfterFunc(orphanTimeout, cancel)
	defer timer.Stop()
	<-ctx.Done()
}

// hosted tells whether a host started the plugin.
func hosted(env Env) bool { return env.lookup(wire.CookieKey) == wire.CookieValue }

// checkHost refuses a host that cannot work, and warns of one that will
// refuse.
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
		// As go-plugin's server does: answer with what there is, and let the
		// host report both sides.
		log.Warn("host and plugin have no protocol version in common: build the plugin with a matching SDK",
			"host", versions, "plugin", own)
	}
	return nil
}

// shake writes the handshake line, in go-plugin's form: core version, protocol
// version, network, address, protocol, and an empty certificate.
func shake(env Env, s *socket) error {
	line := fmt.Sprintf("%d|%d|unix|%s|grpc|", wire.CoreProtocolVersion, wire.ProtocolVersion, s.path)
	if env.lookup(wire.EnvMultiplex) != "" {
		// Only a host that asks can read a seventh field: whether the broker's
		// servers share the socket. There is no broker.
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

// watchStdin gives a channel that is closed when r ends, and a function that
// stops watching. A reader that cannot be closed is left to its end.
func watchStdin(r io.Reader) (eof <-chan struct{}, unwatch func()) {
	if r == nil {
		return nil, func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, r) // an error ends it as well as EOF does
	}()
	return ended, func() {
		if c, ok := r.(io.Closer); ok {
			_ = c.Close()
			<-ended
		}
	}
}

// socket is where the plugin listens.
type socket struct {
	listener *net.UnixListener
	path     string
	// folder is removed in the end; empty where it is the host's.
	folder string
}

// listen opens a socket in dir, or in a private folder of its own.
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

// open listens under a name that no other plugin in dir has.
func (s *socket) open(dir string) error {
	file, err := os.CreateTemp(dir, "plugin")
	if err != nil {
		return err
	}
	s.path = filepath.Clean(file.Name())
	if err := errors.Join(file.Close(), os.Remove(s.path)); err != nil {
		return err
	}
	if len(s.path) > maxSocketPath {
		return fmt.Errorf("path %q has %d bytes, the system takes %d: use a shorter folder", s.path, len(s.path), maxSocketPath)
	}
	s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return err
	}
	return os.Chmod(s.path, 0o600)
}

// maxSocketPath is the shortest limit among the systems we run on: macOS has
// 104 bytes with the final zero, Linux 108.
const maxSocketPath = 103

// remove closes the socket, which unlinks it, and removes what was made for it.
func (s *socket) remove() {
	if s.listener != nil {
		_ = s.listener.Close() // the server has closed it before
	}
	if s.folder != "" {
		_ = os.RemoveAll(s.folder)
	}
}
