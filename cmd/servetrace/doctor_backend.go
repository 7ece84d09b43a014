package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path"
	"strings"
	"time"
)

// address is the address to which a plugin sends. Plugins log it at level INFO, in these
// attributes. Either Endpoint or Address is set, and From is the setting that it comes from.
type address struct {
	Endpoint string `json:"endpoint"`
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
	TLS      string `json:"tls"`
	Proxy    string `json:"proxy"`
	From     string `json:"from"`
}

// newJSONLog returns a logger for readLog.
func newJSONLog(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }

// readLog returns the warnings and errors in a log of newJSONLog, and the address to which
// the plugin sends. Without such an address, to.Endpoint is empty.
func readLog(log []byte) (remarks []string, to address) {
	for line := range bytes.Lines(log) {
		var of address
		var record struct {
			Level, Msg, Text string
		}
		if json.Unmarshal(line, &record) != nil || json.Unmarshal(line, &of) != nil {
			continue // the plugin has logged an attribute of the same name with another type
		}
		switch record.Level {
		case slog.LevelWarn.String(), slog.LevelError.String():
			remarks = append(remarks, cmp.Or(record.Text, record.Msg)) // a remark on the configuration is in the attribute text
		case slog.LevelInfo.String():
			if of.Endpoint = cmp.Or(of.Endpoint, of.Address); of.Endpoint != "" {
				to = of
			}
		}
	}
	return remarks, to
}

// backEnd connects to the address of the back end. A failure is only a warning if the plugin
// has delivered the marked span.
func (p *pluginCheck) backEnd(ctx context.Context) finding {
	to := p.trial.address
	if to.Endpoint == "" {
		return finding{Result: skipped, Text: "the plugin does not log the address that it sends to"}
	}
	text := to.Endpoint
	for _, more := range []struct{ prefix, value string }{{"", to.Protocol}, {"TLS: ", to.TLS}, {"by ", to.From}} {
		if more.value != "" {
			text += ", " + more.prefix + more.value
		}
	}
	fact, err := probe(ctx, to)
	if err == nil {
		return finding{Result: passed, Text: text + ": " + fact}
	}
	f := finding{Result: failed, Text: fmt.Sprintf("%s: %v", text, err), Next: nextOfProbe(err, to)}
	if p.trial.answer.Err == nil && p.trial.ended == "" {
		f.Result = warned // the plugin may reach the back end in another way, such as a proxy
		return f
	}
	if p.trial.answer.Err != nil {
		f.Details = []string{p.trial.answer.Err.Error()}
	}
	f.Next = cmp.Or(p.trial.next(), f.Next)
	return f
}

// probeTimeout bounds a call of probe, with the lookup of the name and TLS.
const probeTimeout = 3 * time.Second

// probe connects to an address, and returns a text about the connection. It begins TLS if
// the plugin uses TLS and no proxy. It checks no certificate, because the plugin may trust
// other authorities than this command.
func probe(ctx context.Context, to address) (fact string, err error) {
	network, at, secure := target(to)
	if at == "" {
		return "this form of address is not tried", nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, at)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // no data was sent
	via := ""
	if to.Proxy != "" {
		return fmt.Sprintf("its proxy %s accepts connections", to.Proxy), nil
	}
	if secure {
		name, _, _ := net.SplitHostPort(at)                                                 // no error, because the connection was made
		client := tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // nothing is sent
		if err := client.HandshakeContext(ctx); err != nil {
			return "", fmt.Errorf("begin TLS: %w", err)
		}
		via = " with " + tls.VersionName(client.ConnectionState().Version)
	}
	return "accepts connections" + via, nil
}

// target returns the network and the address to connect to, for net.Dialer. secure is true
// if the plugin uses TLS there. at is empty if the form of the address is unknown.
func target(to address) (network, at string, secure bool) {
	text := cmp.Or(to.Proxy, to.Endpoint)
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case found && scheme == "unix":
		if strings.HasPrefix(rest, "/") {
			rest = "/" + strings.TrimLeft(rest, "/")
		}
		return "unix", rest, false // a path without a slash, as in "unix:a.sock", is relative to the working folder
	case found && (scheme == "dns" || scheme == "passthrough"): // name resolvers of gRPC
		text = path.Base(rest)
	case strings.Contains(text, "://"):
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return "", "", false
		}
		port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
		return "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), u.Scheme == "https"
	}
	if _, _, err := net.SplitHostPort(text); err != nil {
		return "", "", false
	}
	return "tcp", text, to.TLS != "" && to.TLS != "off"
}

// nextOfProbe returns the command for a failed probe.
func nextOfProbe(err error, to address) string {
	_, at, _ := target(to)
	name, port, _ := net.SplitHostPort(at) // name and port are empty for a Unix socket
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return "getent hosts " + shellWord(lookup.Name)
	}
	if name == "" {
		return "ls -l " + shellWord(at)
	}
	return fmt.Sprintf("curl -v http://%s", net.JoinHostPort(name, port))
}
