package plugintest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

type startOptions struct {
	// handshake replaces the values of variables of the handshake. A variable with an empty
	// value is omitted.
	handshake map[string]string
	// pathOnly omits all variables that every plugin gets, except PATH.
	pathOnly bool
	// unshared starts the process without the descriptor for output to the host's standard
	// output.
	unshared bool
	// offline starts the process without a network.
	offline bool
}

var asHost startOptions

// plugin is a started plugin, in a process of its own or in this process. It must be
// ended by stop.
type plugin struct {
	runner
	folder  *launch.Folder
	sockets string // path of the folder for the plugin's socket
	out     *output
	// exit returns nil if the plugin ended with status 0, and otherwise an error with the
	// status or the signal. It must not be called before Done is closed.
	exit  func() error
	inner *inner // nil if the plugin runs in a process
}

// runner controls a running plugin. A *launch.Child controls a process, and an *inner a
// plugin in this process.
type runner interface {
	Signal(syscall.Signal)
	CloseStdin()
	// Kill ends the plugin at once. why is for the log.
	Kill(why string)
	// Done returns a channel that is closed when the plugin has ended.
	Done() <-chan struct{}
	// PID returns the id of the plugin's process, or 0 for a plugin in this process.
	PID() int
}

// start starts the plugin, in a process or in this process. It does not wait for the
// handshake. The caller must call stop.
func (t Target) start(o startOptions) (*plugin, error) {
	folder, err := launch.NewFolder(nil)
	if err != nil {
		return nil, err
	}
	p := &plugin{folder: folder, sockets: filepath.Join(folder.Path, "s"), out: newOutput()}
	if err = os.Mkdir(p.sockets, 0o700); err == nil {
		if t.spec != nil {
			p.startInner(*t.spec, o.environ(p.sockets))
		} else {
			err = p.startProcess(t, o)
		}
	}
	if err != nil {
		folder.Remove()
		return nil, err
	}
	return p, nil
}

func (p *plugin) startProcess(t Target, o startOptions) error {
	path, err := t.executable()
	if err != nil {
		return err
	}
	var shared *os.File
	if !o.unshared {
		if shared, err = openNull(); err != nil {
			return err
		}
		defer func() { _ = shared.Close() }() // nothing was written to it, so nothing can be lost
	}
	child := launch.NewChild()
	p.runner = child
	p.exit = func() error {
		if child.State().Success() {
			return nil
		}
		return fmt.Errorf("it ended with %v", child.State())
	}
	err = child.Start(context.Background(), launch.Spawn{
		Path: path, Arg0: path, Shared: shared, Mark: p.folder.Path,
		Environ:    slices.Concat(o.environ(p.sockets), t.env),
		Attributes: func(attr *syscall.SysProcAttr) { setAttributes(attr, o.offline) },
		ReadStdout: func(r *os.File) { p.out.readStdout(r) },
		ReadStderr: func(r *os.File) { p.out.readStderr(r) },
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// openNull opens /dev/null, which the suite uses in place of the host's standard output.
func openNull() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_WRONLY, 0) }

// baseEnviron returns the variables that a host passes to every plugin, or only PATH if
// pathOnly is true.
func baseEnviron(pathOnly bool) []string {
	var environ []string
	for _, entry := range os.Environ() { //nolint:forbidigo // a host passes on its own variables, too
		name, _, _ := strings.Cut(entry, "=")
		if wire.BaseVariable(name) && (!pathOnly || name == "PATH") {
			environ = append(environ, entry)
		}
	}
	return environ
}

// environ returns the environment in which the plugin starts. sockets is the folder for
// its socket.
func (o startOptions) environ(sockets string) []string {
	handshake := map[string]string{
		wire.CookieKey:           wire.CookieValue,
		wire.EnvProtocolVersions: strconv.Itoa(wire.ProtocolVersion),
		wire.EnvSocketDir:        sockets,
		"PLUGIN_MIN_PORT":        "10000", // go-plugin's client always sets both ports
		"PLUGIN_MAX_PORT":        "25000",
	}
	maps.Copy(handshake, o.handshake)
	environ := baseEnviron(o.pathOnly)
	for name, value := range handshake {
		if value != "" {
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}

// handshake waits for the first line on standard output, at most for patience, and parses
// it as the handshake.
func (p *plugin) handshake(ctx context.Context, patience time.Duration) (handshake, error) {
	late := fmt.Errorf("no line on standard output within %v; want the handshake 1|1|unix|PATH|grpc", patience)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, late)
	defer cancel()
	var line string
	select {
	case line = <-p.out.first:
	case <-ctx.Done():
		return handshake{}, context.Cause(ctx)
	case <-p.Done():
		select {
		case line = <-p.out.first:
		default:
			return handshake{}, fmt.Errorf("no handshake on standard output: %s", p.ending())
		}
	}
	shake, ok := parseHandshake(line)
	if !ok {
		return shake, fmt.Errorf("first line of standard output is %q; want 1|1|unix|PATH|grpc and nothing before it: print to standard error", wire.Clip(line))
	}
	return shake, nil
}

// ending describes in words how the plugin ended. It must not be called before Done is
// closed.
func (p *plugin) ending() string {
	if err := p.exit(); err != nil {
		return err.Error()
	}
	return "it ended with status 0"
}

// awaitEnd waits until the plugin has ended, at most for limit. It returns an error if
// the plugin still runs.
func (p *plugin) awaitEnd(ctx context.Context, limit time.Duration) error {
	wait, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it still runs after %v", limit))
	defer cancel()
	select {
	case <-p.Done():
		return nil
	case <-wait.Done():
		return context.Cause(wait)
	}
}

// stop kills the plugin, waits until it has ended and removes its folder.
func (p *plugin) stop() {
	p.Kill("the rule is over")
	<-p.Done()
	p.folder.Remove()
}

func (p *plugin) lastLines() []string {
	if p.inner == nil {
		return p.out.tail()
	}
	log := newOutput()
	log.readStderr(strings.NewReader(p.inner.log.String()))
	return log.tail()
}

// filesLeft returns an error if the folder for the socket still holds a file.
func (p *plugin) filesLeft() error {
	left, err := os.ReadDir(p.sockets)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && len(left) > 0:
		return fmt.Errorf("%s holds %v after the end; remove the socket", wire.EnvSocketDir, left)
	}
	return err
}
