package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"
)

const (
	// lookupEvery is the interval of lookups. Each lookup asks the DNS server, because Go's
	// resolver has no cache.
	lookupEvery = time.Second
	// lookupTimeout bounds a lookup. By default a resolver repeats a query after 5 seconds,
	// so a lookup can still succeed after one lost answer.
	lookupTimeout = 8 * time.Second
)

// dnsSource is the Source that looks up a DNS name each second. For the name of a headless
// Service, Kubernetes answers with the addresses of the pods that are ready.
type dnsSource struct {
	host, port string
	server     string // host:port of the DNS server; "" means the DNS servers of the system
	resolver   *net.Resolver
	log        *slog.Logger
	// every is lookupEvery, and timeout is lookupTimeout. Tests set shorter times.
	every, timeout time.Duration
}

var _ Source = (*dnsSource)(nil)

// parseDNS returns the source of target, which is host:port. server is the host:port of the
// DNS server, or "" for the DNS servers of the system.
func parseDNS(server, target string, cfg Config) (Source, error) {
	if strings.Contains(target, ",") {
		return nil, fmt.Errorf("dns takes one name, not %q: for a list, write static:///%s", target, target)
	}
	host, port, err := splitHostPort(target)
	if err != nil {
		return nil, err
	}
	resolver := net.DefaultResolver
	if server != "" {
		if _, _, err := splitHostPort(server); err != nil {
			return nil, fmt.Errorf("DNS server: %w", err)
		}
		resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}}
	}
	return &dnsSource{host: host, port: port, server: server, resolver: resolver, log: cfg.Log.With("name", host), every: lookupEvery, timeout: lookupTimeout}, nil
}

// Watch implements [Source]. It reports the list after the first lookup that succeeds, and
// after each lookup with another result.
func (s *dnsSource) Watch(ctx context.Context, update func([]Endpoint), failed func(error)) {
	var last []Endpoint
	state := state{log: s.log, result: failed}
	timer := time.NewTicker(s.every)
	defer timer.Stop()
	for {
		list, err := s.lookup(ctx)
		if ctx.Err() != nil {
			return
		}
		state.report(err, len(last))
		if err == nil && !slices.Equal(list, last) {
			last = list
			update(slices.Clone(list))
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookup returns the endpoints of the name. If the name has no addresses, it returns an
// error, so that the last list stays in use: DNS servers also answer so while they start.
func (s *dnsSource) lookup(ctx context.Context) ([]Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	addrs, err := s.resolver.LookupNetIP(ctx, "ip", s.host)
	if fault, is := errors.AsType[*net.DNSError](err); is && s.server != "" {
		with := *fault // the error of the resolver has a server of the system, which was not asked
		with.Server = s.server
		return nil, &with
	}
	if err != nil {
		return nil, err
	}
	var list []Endpoint
	for _, addr := range addrs {
		list = append(list, Endpoint{Addr: net.JoinHostPort(addr.Unmap().String(), s.port), Serving: true, Ready: true})
	}
	slices.SortFunc(list, byAddr)
	return slices.Compact(list), nil
}

// state passes on the results of a source's requests. It logs when the source begins to fail,
// and when it works again.
type state struct {
	result func(error) // gets the error of each request; nil for a success
	log    *slog.Logger
	failed bool // the last request has failed
}

// report must be called after each request of a source, with its error. It passes the error
// to result, and logs the first failure and the first success after a failure. known is
// the number of endpoints that the source has found before.
func (s *state) report(err error, known int) {
	s.result(err)
	switch failed := err != nil; {
	case failed && !s.failed && known == 0:
		s.log.Warn("discovery fails, and no process is known", "error", err)
	case failed && !s.failed:
		s.log.Warn("discovery fails, and the last list stays in use", "endpoints", known, "error", err)
	case !failed && s.failed:
		s.log.Info("discovery works again")
	}
	s.failed = err != nil
}
