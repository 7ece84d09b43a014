package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/internal/servicefile"
)

const statusLong = `Show the plugins and the delivery accounting of a running service, which needs an admin
listener (SERVE_ADMIN_PORT).

Without --addr, the address is SERVE_ADMIN_HOST and SERVE_ADMIN_PORT, from this
environment or the service file of SERVE_CONFIG, or else 127.0.0.1:8001.

The exit code is 0 if every plugin in the list is ready, or tracing is off; 1 if no
service answers; 3 if a plugin is in another state. With --watch, it is the code of the
last answer, or 130 if there was none.`

const statusExample = `  servetrace status --addr 10.1.2.3:8001 --json`

const (
	statusTimeout = 5 * time.Second
	// watchPause is the interval between two requests of --watch.
	watchPause = 2 * time.Second
	// mostStatus bounds the answer, in bytes.
	mostStatus = 16 << 20
)

func newStatus(s settings) *cobra.Command {
	var addr string
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the plugins and the delivery accounting of a running service",
		Long:    statusLong,
		Example: statusExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := adminURL(s, addr, cmd.Flags().Changed("addr"))
			if err != nil {
				return err
			}
			if watch {
				return watchStatus(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), at, asJSON)
			}
			return showStatus(cmd.Context(), cmd.OutOrStdout(), at, asJSON)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "", "`address` of the admin listener: host:port, :port, or a URL")
	addJSON(cmd, &asJSON)
	cmd.Flags().BoolVar(&watch, "watch", false, "ask again every two seconds")
	return cmd
}

// adminURL returns the address of the status: addr if it is given, or else the admin
// listener of a service in this environment. Errors in the service file count only if the
// port is not known otherwise, because the file may have changed since the service read it.
func adminURL(s settings, addr string, given bool) (string, error) {
	if given {
		return statusURL("--addr", addr)
	}
	getenv, portOf := s.getenv, admin.EnvPort
	if path := strings.TrimSpace(s.getenv(servetrace.EnvConfig)); path != "" {
		data, err := servicefile.Read(path)
		if err == nil {
			file := servicefile.Parse(path, data, s.getenv)
			getenv, err = file.Getenv, file.Err()
			if !file.FromEnv(admin.EnvPort) {
				portOf = path + ": admin.port"
			}
		}
		if err != nil && getenv(admin.EnvPort) == "" {
			return "", usageError{err}
		}
	}
	name := cmp.Or(getenv(admin.EnvHost), admin.DefaultHost)
	if ip, err := netip.ParseAddr(name); err == nil && ip.IsUnspecified() {
		name = admin.DefaultHost
	}
	port := cmp.Or(getenv(admin.EnvPort), strconv.Itoa(admin.DefaultPort))
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", usagef("%s is %q: want a port from 1 to 65535; for a service with port 0, take the port from its log and give it to --addr",
			portOf, port)
	}
	return statusURL("--addr", net.JoinHostPort(name, port))
}

// statusURL returns the address of the status in JSON. addr is host:port, :port, or a
// URL with or without the path of the page. The error names flag.
func statusURL(flag, addr string) (string, error) {
	text := addr
	if strings.HasPrefix(text, ":") && !strings.HasPrefix(text, "::") {
		text = "127.0.0.1" + text // a port of this machine
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" {
		return "", usagef("%s %q: want host:port, or a URL such as http://127.0.0.1:8001", flag, addr)
	}
	path := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), ".json"), "/-/tracing")
	return u.Scheme + "://" + u.Host + path + "/-/tracing.json", nil
}

// showStatus asks once and writes the answer. The error is nil if all plugins are ready.
func showStatus(ctx context.Context, w io.Writer, at string, asJSON bool) error {
	status, err := askStatus(ctx, at)
	if err != nil {
		return err
	}
	if asJSON {
		err = writeJSON(w, status)
	} else {
		err = writeStatus(w, status)
	}
	return errors.Join(err, verdictOf(status))
}

// errNoAnswer is the error of a watch that ended before the first answer.
var errNoAnswer = errors.New("the service has not answered")

// watchStatus asks until ctx ends, also while the service cannot be reached.
func watchStatus(ctx context.Context, w, stderr io.Writer, at string, asJSON bool) error {
	before := ""
	if progress.IsTerminal(w) && !asJSON {
		before = "\x1b[H\x1b[J" // move to the upper left corner and clear the screen
	}
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for answer := errNoAnswer; ; {
		if _, err := io.WriteString(w, before); err != nil {
			return err
		}
		last := showStatus(ctx, w, at, asJSON)
		_, down := errors.AsType[notReadyError](last)
		if last == nil || down || ctx.Err() == nil {
			answer = last
		}
		if ctx.Err() != nil { // the last request may have been canceled, which is no answer
			return answer
		}
		if last != nil && !down {
			if _, err := fmt.Fprintln(stderr, printable.Lines(last.Error())); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return answer
		}
		if before == "" && !asJSON {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err // a failed write ends the watch
			}
		}
	}
}

// ask sends a request to an admin listener, and returns its answer with status 200. It
// follows no redirection, because the listener sends none.
func ask(ctx context.Context, at string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, usagef("--addr: %w", err)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ResponseHeaderTimeout: statusTimeout}
	resp, err := transport.RoundTrip(req)
	at, _, _ = strings.Cut(at, "?")
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w; does the service run with %s set? --addr sets another address", at, err, admin.EnvPort)
	}
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close() // read only
		first, _, _ := strings.Cut(string(text), "\n")
		return nil, errors.Join(fmt.Errorf("ask %s: status %s: %.200s", at, resp.Status, first), err)
	}
	return resp, nil
}

// askStatus requests the status.
func askStatus(ctx context.Context, at string) (admin.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	resp, err := ask(ctx, at)
	if err != nil {
		return admin.Status{}, err
	}
	defer func() { _ = resp.Body.Close() }() // read only
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostStatus))
	if err != nil {
		return admin.Status{}, fmt.Errorf("ask %s: %w", at, err)
	}
	var status admin.Status
	if err := json.Unmarshal(body, &status); err != nil || status.Version == 0 {
		return admin.Status{}, fmt.Errorf("ask %s: the answer is not a status: is that the port of %s?", at, admin.EnvPort)
	}
	if status.Version != admin.StatusVersion {
		return admin.Status{}, fmt.Errorf("ask %s: the status has version %d, and this command knows %d: use the servetrace of the service's version",
			at, status.Version, admin.StatusVersion)
	}
	return status, nil
}

// notReadyError names the plugins that are not ready: exit code 3.
type notReadyError struct{ text string }

func (e notReadyError) Error() string { return e.text }

// verdictOf returns an error unless all plugins are ready. Stopped plugins have left the
// list and do not count, except if all are stopped: then the service is about to end.
func verdictOf(status admin.Status) error {
	var down []string
	listed := 0
	for _, p := range status.Plugins {
		if p.State == host.StateStopped.String() {
			continue
		}
		listed++
		if p.State != host.StateReady.String() {
			down = append(down, fmt.Sprintf("%s (%s)", p.Name, p.State))
		}
	}
	switch {
	case len(down) > 0:
		return notReadyError{fmt.Sprintf("%d of %s not ready: %s", len(down), counted(listed, "plugin"), strings.Join(down, ", "))}
	case listed == 0 && len(status.Plugins) > 0:
		return notReadyError{"the plugins are stopped: the service is about to end"}
	}
	return nil
}
