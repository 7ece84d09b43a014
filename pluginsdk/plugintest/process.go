package plugintest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// how lists what the suite changes about the start of a plugin. The zero value is a
// host's start.
type how struct {
	// cookie, versions: another value of the handshake's variable; "-" leaves
	// the variable out.
	cookie, versions string
	// pathOnly leaves out all base variables but PATH.
	pathOnly bool
	// unshared hands no standard output down.
	unshared bool
	// offline gives the process no network.
	offline bool
}

// baseEnviron returns the variables that a plugin starts with, without the
// handshake's.
func baseEnviron(pathOnly bool) []string {
	var environ []string
	for _, entry := range os.Environ() { //nolint:forbidigo // a host hands on its own environment
		name, _, _ := strings.Cut(entry, "=")
		if wire.BaseVariable(name) && (!pathOnly || name == "PATH") {
			environ = append(environ, entry)
		}
	}
	return environ
}

// handshakeEnviron returns the variables of the handshake.
func (h how) handshakeEnviron(socketDir string) []string {
	environ := []string{
		wire.EnvSocketDir + "=" + socketDir,
		"PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000", // go-plugin's client always sends them
	}
	for _, v := range []struct{ name, value, usual string }{
		{wire.CookieKey, h.cookie, wire.CookieValue},
		{wire.EnvProtocolVersions, h.versions, fmt.Sprint(wire.ProtocolVersion)},
	} {
		switch v.value {
		case "-":
		case "":
			environ = append(environ, v.name+"="+v.usual)
		default:
			environ = append(environ, v.name+"="+v.value)
		}
	}
	return environ
}

// sockets is the private folder of a plugin, with the folder for its socket.
type sockets struct {
	*launch.Folder
	dir string
}

func newSockets() (sockets, error) {
	folder, err := launch.NewFolder(nil)
	if err != nil {
		return sockets{}, err
	}
	s := sockets{folder, filepath.Join(folder.Path, "s")}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		folder.Remove()
		return sockets{}, err
	}
	return s, nil
}

// child is a plugin in a process of its own. It belongs to the trial that
// started it, which calls stop.
type child struct {
	process *launch.Child
	sockets sockets
	out     output
}

var _ plugin = (*child)(nil)

// startChild starts the target's executable, and waits for nothing.
func startChild(target Target, h how) (*child, error) {
	path, err := target.executable()
	if err != nil {
		return nil, err
	}
	var shared *os.File
	if !h.unshared {
		if shared, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			return nil, err
		}
		defer func() { _ = shared.Close() }() // nothing was written
	}
	folder, err := newSockets()
	if err != nil {
		return nil, err
	}
	c := &child{process: launch.NewChild(), sockets: folder}
	err = c.process.Start(context.Background(), launch.Spawn{
		Path: path, Arg0: path, Shared: shared, Mark: folder.Path,
		Environ:    slices.Concat(baseEnviron(h.pathOnly), target.env, h.handshakeEnviron(folder.dir)),
		Attributes: func(attr *syscall.SysProcAttr) { setAttributes(attr, h.offline) },
		ReadStdout: func(r *os.File) { c.out.read(r, "stdout") },
		ReadStderr: func(r *os.File) { c.out.read(r, "stderr") },
	})
	if err != nil {
		folder.Remove()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return c, nil
}

func (c *child) terminate()                { c.process.Signal(syscall.SIGTERM) }
func (c *child) signal(sig syscall.Signal) { c.process.Signal(sig) }
func (c *child) closeStdin()               { c.process.CloseStdin() }
func (c *child) done() <-chan struct{}     { return c.process.Done() }
func (c *child) printed() *output          { return &c.out }
func (c *child) socketDir() string         { return c.sockets.dir }
func (c *child) pid() int                  { return c.process.PID() }

// exit says how the process ended; nil after status 0. Not before done.
func (c *child) exit() error {
	if c.process.State().Success() {
		return nil
	}
	return fmt.Errorf("it ended with %v", c.process.State())
}

func (c *child) firstLine(ctx context.Context) (string, error) {
	select {
	case line := <-c.out.firstLine():
		return line, nil
	case <-c.process.Done():
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	select {
	case line := <-c.out.firstLine():
		return line, nil
	default:
		return "", io.EOF
	}
}

// stop kills the process and its group, waits for its end and removes its folder.
func (c *child) stop() {
	c.process.Kill("the rule is over")
	<-c.process.Done()
	c.sockets.Remove()
}
