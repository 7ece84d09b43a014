// Package discovery reports the processes that run a deployment on other machines.
//
// The life of a source:
//
//  1. Parse makes it from a target such as dns:///model.default.svc:9100.
//  2. Watch reports the whole list of endpoints at each change, until its context ends.
//     After a failure the last list stays valid. Each failure is reported, and the first
//     failure is logged.
//
// There are three kinds of sources: a fixed list, a DNS name such as the name of a headless
// Service, and the EndpointSlices of a Service. These are read from the Kubernetes API with
// net/http.
//
// The package does not connect to endpoints: package callclient does. It does not choose an
// endpoint for a call: package router does. Open discovery.go first.
package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An Endpoint is one process that takes calls.
type Endpoint struct {
	// Addr is host:port. No two endpoints of a list have the same Addr.
	Addr string
	// Serving reports whether the process answers calls. It may be true while the process
	// terminates.
	Serving bool
	// Ready reports whether the process answers calls and does not terminate.
	Ready bool
	// Name is the name of the pod. It is "" if the name is unknown.
	Name string
}

// A Source reports the processes of a deployment. It is safe for concurrent use.
type Source interface {
	// Watch calls update with the whole list, sorted by Addr, at each change. The first
	// call comes as soon as the list is known, and update owns the list. Watch returns only
	// when ctx ends. It repeats a request that failed, and logs the first failure and the
	// first success after it. Watch calls failed with the error of each failed request, and
	// with nil after a success. Calls of update and failed do not overlap.
	Watch(ctx context.Context, update func([]Endpoint), failed func(error))
}

// Config has the log of sources, and their access to Kubernetes. The zero value fits a
// process in a pod.
type Config struct {
	// Log gets a line when a source begins to fail, and when it works again. If it is nil,
	// there are no lines.
	Log *slog.Logger
	// KubernetesAPI is the host:port of the API for k8s targets. "" means
	// kubernetes.default.svc:443.
	KubernetesAPI string
	// ServiceAccount is the folder with the files token, ca.crt and namespace. "" means the
	// folder that the kubelet mounts, /var/run/secrets/kubernetes.io/serviceaccount.
	ServiceAccount string
}

// hostName matches texts of the characters that names of hosts have.
var hostName = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

// forms is the text about the forms of a target in errors.
const forms = "static:///host:port,host:port or dns:///host:port or k8s:///[namespace/]service:port"

// Parse returns the source of a target, in one of these forms:
//
//	static:///10.0.0.7:9100,10.0.0.8:9100   a fixed list
//	dns:///model.default.svc:9100           the addresses of a name, looked up each second
//	dns://10.0.0.10:53/model:9100           the same, but asks this DNS server
//	k8s:///default/model:9100               the EndpointSlices of a Service
//
// A k8s target without a namespace means the namespace of the pod. Its port is the name of
// a port of the Service, or the number of a port of the pods. An error has the target, the
// fault and the right form. For a k8s target, Parse fails if the files of the service
// account do not exist.
func Parse(target string, cfg Config) (Source, error) {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok {
		return nil, fmt.Errorf("target %q has no scheme: write %s", target, forms)
	}
	if !slices.Contains([]string{"static", "dns", "k8s"}, scheme) {
		return nil, fmt.Errorf("target %q: unknown scheme %q: write %s", target, scheme, forms)
	}
	authority, rest, slash := strings.Cut(rest, "/")
	if scheme == "dns" && authority != "" && slash && rest == "" {
		return nil, fmt.Errorf("target %q has a DNS server and no name: write dns://%s/host:port", target, authority)
	}
	if authority != "" && (scheme != "dns" || rest == "") {
		return nil, fmt.Errorf("target %q: %q stands after \"//\": write %s:///%s", target, authority, scheme, strings.TrimSuffix(authority+"/"+rest, "/"))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var source Source
	var err error
	switch scheme {
	case "static":
		source, err = parseStatic(rest)
	case "dns":
		source, err = parseDNS(authority, rest, cfg)
	case "k8s":
		source, err = parseKubernetes(rest, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("target %q: %w", target, err)
	}
	return source, nil
}

// splitHostPort returns the host and the port of s. It brings an IP address and the port into
// their usual form, so that texts of the same endpoint become equal.
func splitHostPort(s string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(s)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%q is not host:port: %w", s, err)
	case host == "":
		return "", "", fmt.Errorf("%q has no host", s)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	} else if !hostName.MatchString(host) {
		return "", "", fmt.Errorf("%q: host %q is neither an IP address nor a name of letters, digits, '-', '_' and '.'", s, host)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", "", fmt.Errorf("%q: port %q is not a number from 1 to 65535", s, port)
	}
	return host, strconv.FormatUint(n, 10), nil
}

// staticSource is the Source of a fixed list.
type staticSource []Endpoint

var _ Source = staticSource(nil)

// parseStatic returns the Source of a list such as host:port,host:port.
func parseStatic(list string) (Source, error) {
	var source staticSource
	for addr := range strings.SplitSeq(list, ",") {
		host, port, err := splitHostPort(strings.TrimSpace(addr))
		if err != nil {
			return nil, err
		}
		addr = net.JoinHostPort(host, port)
		if slices.ContainsFunc(source, func(e Endpoint) bool { return strings.EqualFold(e.Addr, addr) }) {
			return nil, fmt.Errorf("%q stands twice in the list", addr)
		}
		source = append(source, Endpoint{Addr: addr, Serving: true, Ready: true})
	}
	slices.SortFunc(source, byAddr)
	return source, nil
}

// Watch implements [Source]. It reports the list once.
func (s staticSource) Watch(ctx context.Context, update func([]Endpoint), _ func(error)) {
	update(slices.Clone(s))
	<-ctx.Done()
}

// byAddr compares endpoints by Addr, for sorting.
func byAddr(a, b Endpoint) int { return strings.Compare(a.Addr, b.Addr) }
