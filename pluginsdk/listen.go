package pluginsdk

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/localsocket"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/internal/yamlfile"
)

// listening holds the flags of a plugin that runs by hand with --listen, for hosts that
// attach, for example under a debugger. It configures itself, and no host ends it.
type listening struct {
	address string
	config  string // path of the configuration; empty if there is none
	// debug disables the deadlines of calls, so that a breakpoint does not cancel them.
	debug bool
}

// debugDrainTimeout is drainTimeout with --debug, when a user may step through the end.
const debugDrainTimeout = time.Hour

func wantsListen(env Env) bool {
	return slices.ContainsFunc(env.Args[min(1, len(env.Args)):], func(arg string) bool {
		return arg == "--listen" || strings.HasPrefix(arg, "--listen=")
	})
}

// listenFlags parses the command line of a plugin that listens.
func listenFlags(env Env) (listening, error) {
	var l listening
	flags := flag.NewFlagSet("plugin", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&l.address, "listen", "", "")
	flags.StringVar(&l.config, "config", "", "")
	flags.BoolVar(&l.debug, "debug", false, "")
	err := flags.Parse(env.Args[1:])
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("argument %q is not known", flags.Arg(0))
	}
	if err != nil {
		return l, fmt.Errorf("%w; --help lists the flags for --listen", err)
	}
	return l, nil
}

// serveListening runs the plugin until ctx ends, for any number of hosts.
func serveListening(ctx context.Context, env Env, spec Spec) (ending, error) {
	l, err := listenFlags(env)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(env.Stdout, help(env, spec))
		return byHand, err
	}
	if err != nil {
		return byHand, err
	}
	document, err := readDocument(l.config)
	if err != nil {
		return byHand, err
	}
	path, err := socketPath(l.address)
	if err != nil {
		return byHand, fmt.Errorf("--listen %q: %w", l.address, err)
	}
	listener, err := localsocket.Listen(path)
	if err != nil {
		return byHand, fmt.Errorf("listen at %q: %w", path, err)
	}
	socket := &socket{listener: listener, path: path}
	defer socket.remove()

	service := env.lookup("OTEL_SERVICE_NAME")
	env.Environ = environByHand(env.Environ, spec.Env)
	p := newPlugin(env, spec, slog.New(slog.NewTextHandler(cmp.Or(env.Log, env.Stderr), nil)))
	p.listening = &l
	if n := spec.Limits.MaxConcurrency; n > 0 {
		p.slots = make(chan struct{}, n)
	}
	if err := configureItself(ctx, p, document, path, service); err != nil {
		return byHand, err
	}
	return p.serve(ctx, socket, nil, func() error {
		_, err := io.WriteString(env.Stdout, l.line(spec, path))
		if err == nil {
			p.log.Info("plugin listens for hosts that attach; start a service with the line on standard output in front", "plugin", spec.Name)
		}
		return err
	})
}

// configureItself does the work of Configure, with the configuration of the command line
// and the variables of the process.
func configureItself(ctx context.Context, p *plugin, document []byte, path, service string) error {
	name := filepath.Base(path)
	diagnostics, err := p.configure(ctx, &pluginv1.ConfigureRequest{
		Env:    nil, // the process has the variables
		Config: document,
		Context: &pluginv1.StaticContext{
			Application: "", Deployment: "", Replica: "", Node: "", Job: "", // they may differ between hosts
			ServiceName: service,
			PluginName:  strings.TrimSuffix(name, filepath.Ext(name)), // as a host would name it

			SamplingRatio: 0,
			Terminal:      false, TerminalColumns: 0, // Setup.Stdout is a syscall.Conn
		},
	})
	if err != nil {
		return err // cannot happen, because no host has attached yet
	}
	var faults []error
	for _, d := range diagnostics {
		if isFatal(d) {
			faults = append(faults, &ConfigError{Path: d.GetPath(), Err: errors.New(d.GetText())})
		} else {
			p.log.Warn(d.GetText(), "path", d.GetPath())
		}
	}
	return errors.Join(faults...)
}

// line returns the setting with which a service uses this plugin, and a newline.
func (l listening) line(spec Spec, path string) string {
	line := spec.listVariable() + "=" + shellWord("unix://"+escapeForList(path))
	if l.debug {
		line += " SERVE_TRACING_EXPORT_TIMEOUT=1h SERVE_TRACING_MAX_AGE=24h"
	}
	return line + "\n"
}

// plainWord matches text that needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_%+:,./-]+$`)

// shellWord returns s, quoted for a shell if necessary.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func readDocument(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	document, err := yamlfile.Read(path, yamlfile.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("--config %q: %w", path, err)
	}
	return document, nil
}

// socketPath returns the absolute path in the address of --listen: an address in the form
// of an entry in the list of plugins, or a path.
func socketPath(address string) (string, error) {
	path, isURL := strings.CutPrefix(address, "unix://")
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return "", errors.New("names no socket: want a path, or unix:///PATH")
	case isURL && !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "./") && !strings.HasPrefix(path, "../"):
		return "", fmt.Errorf("the path in an address must be absolute: want unix:///%[1]s, or unix://./%[1]s for one in the working folder", path)
	case !isURL && (strings.Contains(path, "://") || !strings.Contains(path, "/") && strings.Contains(path, ":")):
		return "", errors.New("a plugin listens on a Unix socket only: want a path, or unix:///PATH")
	}
	return filepath.Abs(path)
}

// environByHand returns the variables that a host would grant. So a variable that the
// author forgot to declare is missing even without a host.
func environByHand(environ, declared []string) []string {
	var granted []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if wire.DeclaredBy(declared, name) != "" || wire.BaseVariable(name) {
			granted = append(granted, entry)
		}
	}
	return granted
}

// errListening is the final answer to an attached host that calls a method which only the
// starting host may call.
var errListening = &wire.Error{
	Code: codeUnready, Final: true,
	Err: errors.New("plugin was started by hand, with --listen: it has configured itself, and ends on SIGINT or SIGTERM"),
}
