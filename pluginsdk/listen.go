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

// listening holds the flags of a plugin that a user starts by hand with --listen, for
// example under a debugger. Such a plugin configures itself, serves all hosts that
// connect, and is not ended by a host.
type listening struct {
	address string
	config  string // path of the file with the configuration; empty if there is none
	// debug disables the deadlines of calls, so that a call does not end while it is stopped
	// at a breakpoint.
	debug bool
}

// debugDrainTimeout replaces drainTimeout with --debug, because a user may step through
// the end of the plugin in a debugger.
const debugDrainTimeout = time.Hour

func wantsListen(env Env) bool {
	return slices.ContainsFunc(env.Args[min(1, len(env.Args)):], func(arg string) bool {
		return arg == "--listen" || strings.HasPrefix(arg, "--listen=")
	})
}

// listenFlags parses the command line of a plugin that runs with --listen.
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

// serveListening runs a plugin with --listen until ctx ends. It serves any number of
// hosts.
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

// configureItself runs the constructors, as a call of Configure by a host would. The
// configuration is document, and the variables are those of the process.
func configureItself(ctx context.Context, p *plugin, document []byte, path, service string) error {
	name := filepath.Base(path)
	diagnostics, err := p.configure(ctx, &pluginv1.ConfigureRequest{
		Env:    nil, // the variables come from the process's environment
		Config: document,
		Context: &pluginv1.StaticContext{
			Application: "", Deployment: "", Replica: "", Node: "", Job: "", // several hosts may connect, with different values
			ServiceName: service,
			PluginName:  strings.TrimSuffix(name, filepath.Ext(name)), // as a host would name a plugin at this path

			SamplingRatio: 0,
			Terminal:      false, TerminalColumns: 0, // plugins look for a terminal at Setup.Stdout, which is a syscall.Conn
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

// line returns the setting that makes a service use this plugin, in the syntax of a
// shell, and a newline.
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

// socketPath returns the absolute path of the socket for the argument of --listen, which
// is a path or unix:///PATH.
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

// environByHand returns only the variables that a host would send to the plugin. So if
// the author forgot to declare a variable, it is missing also in a plugin that runs by
// hand.
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

// errListening is the answer to a host that calls Configure or Shutdown, although a user
// has started the plugin by hand. The host must not repeat the call.
var errListening = &wire.Error{
	Code: codeUnready, Final: true,
	Err: errors.New("plugin was started by hand, with --listen: it has configured itself, and ends on SIGINT or SIGTERM"),
}
