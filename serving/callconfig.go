package serving

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/discovery"
)

// The environment variables of calls between processes.
const (
	EnvRemote              = "SERVE_REMOTE"                 // DEPLOYMENT=TARGET,…; default: none
	EnvDeployments         = "SERVE_DEPLOYMENTS"            // names; default: all deployments that are not remote
	EnvCallAddr            = "SERVE_CALL_ADDR"              // host:port; default: no calls are taken
	EnvCallMaxMessageBytes = "SERVE_CALL_MAX_MESSAGE_BYTES" // default 67108864
	EnvCallMaxStreams      = "SERVE_CALL_MAX_STREAMS"       // default 10000
	EnvCallTLSCert         = "SERVE_CALL_TLS_CERT"          // default: no TLS
	EnvCallTLSKey          = "SERVE_CALL_TLS_KEY"
	EnvCallTLSCA           = "SERVE_CALL_TLS_CA"
	EnvCallTLSIDs          = "SERVE_CALL_TLS_IDS" // default: any certificate of the CA
)

// envAPIPort is the variable with the port of the Kubernetes API. envInPod has the host.
const envAPIPort = "KUBERNETES_SERVICE_PORT"

// The values that a zero in [CallConfig] stands for, and the lower bound of
// MaxMessageBytes.
const (
	defaultCallMessageBytes = 64 << 20
	defaultCallStreams      = 10000
	leastCallMessageBytes   = 1 << 10
)

// CallConfig holds an operator's settings of calls between processes. With the zero value,
// the process runs all deployments and calls no other process.
type CallConfig struct {
	// Addr is the host:port at which other processes call the deployments of this process.
	// An empty host means every address, and port 0 any free port. Empty: no other process
	// calls them.
	Addr string

	// Remote has the targets of deployments that other processes run, by name: "NAME", or
	// "APP/NAME" if several apps have the name. A target is
	// static:///host:port,host:port, or dns:///host:port for a headless Service, or
	// k8s:///namespace/service:port for its EndpointSlices. The ingress of an app cannot be
	// remote.
	Remote map[string]string

	// Deployments are the names of the deployments that this process runs. Empty: all
	// deployments that are not remote. If the ingress of an app is not among them, the app
	// takes no requests in this process.
	Deployments []string

	// MaxMessageBytes bounds each argument, each result, and each item of a stream, in both
	// directions. Zero: 64 MiB.
	MaxMessageBytes int

	// TLSCert, TLSKey and TLSCA are files in PEM form for mutual TLS, in both directions:
	// the certificate of this process, its key, and the authorities of the other processes. A
	// process without a certificate of these authorities is refused. The files are read again
	// when they have changed. Empty: no TLS.
	TLSCert, TLSKey, TLSCA string

	// TLSIDs are the SPIFFE ids of the processes that may call this process and that it may
	// call, such as "spiffe://cluster.local/ns/shop/sa/model". An id that ends in "/*"
	// stands for all ids below it. Empty: every process with a certificate.
	TLSIDs []string

	// MaxStreams is the number of calls that one connection may carry at a time. Further
	// calls wait in the processes that make them. Zero: 10,000.
	MaxStreams int

	// KubernetesAPI is the host:port of the Kubernetes API, for k8s targets. In a pod,
	// ConfigFromEnv takes it from the variables that Kubernetes sets. Empty:
	// kubernetes.default.svc:443, which needs the DNS of the cluster.
	KubernetesAPI string
}

func callConfigFromEnv(env *envReader) CallConfig {
	c := CallConfig{
		Addr:            env.getenv(EnvCallAddr),
		Remote:          env.targets(EnvRemote),
		MaxMessageBytes: env.integer(EnvCallMaxMessageBytes, 0, leastCallMessageBytes, math.MaxInt32),
		MaxStreams:      env.integer(EnvCallMaxStreams, 0, 1, math.MaxInt32),
		Deployments:     env.list(EnvDeployments),
		TLSCert:         env.getenv(EnvCallTLSCert),
		TLSKey:          env.getenv(EnvCallTLSKey),
		TLSCA:           env.getenv(EnvCallTLSCA),
		TLSIDs:          env.list(EnvCallTLSIDs),
	}
	if host, port := env.getenv(envInPod), env.getenv(envAPIPort); host != "" && port != "" {
		c.KubernetesAPI = net.JoinHostPort(host, port)
	}
	env.faults.addr(EnvCallAddr, c.Addr)
	return c
}

// list returns the items of a comma-separated list.
func (e *envReader) list(name string) (items []string) {
	for item := range strings.SplitSeq(e.getenv(name), ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// targets reads a list of NAME=TARGET. An item without "=" belongs to the previous target,
// because a static target is a list itself.
func (e *envReader) targets(variable string) map[string]string {
	text := e.getenv(variable)
	if text == "" {
		return nil
	}
	fail := func(format string, args ...any) {
		e.faults.add("%s=%q: %w", variable, text, fmt.Errorf(format, args...))
	}
	targets := map[string]string{}
	last := ""
	for item := range strings.SplitSeq(text, ",") {
		name, target, named := strings.Cut(strings.TrimSpace(item), "=")
		name, target = strings.TrimSpace(name), strings.TrimSpace(target)
		switch {
		case !named && last == "", name == "":
			fail("item %q: want DEPLOYMENT=TARGET, such as Model=dns:///model.default.svc:9100", item)
			return nil
		case !named:
			targets[last] += "," + name
			continue
		case targets[name] != "":
			fail("deployment %q stands there twice", name)
		}
		targets[name], last = target, name
	}
	return targets
}

// check adds all errors, each with the value seen and the allowed values.
func (c CallConfig) check(f *faults) {
	f.addr("Calls.Addr", c.Addr)
	f.number("Calls.MaxMessageBytes", c.MaxMessageBytes, leastCallMessageBytes, math.MaxInt32)
	f.number("Calls.MaxStreams", c.MaxStreams, 1, math.MaxInt32)
	given := 0
	for _, file := range []string{c.TLSCert, c.TLSKey, c.TLSCA} {
		if file != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		f.add("%s=%q, %s=%q and %s=%q: want all three or none", EnvCallTLSCert, c.TLSCert, EnvCallTLSKey, c.TLSKey, EnvCallTLSCA, c.TLSCA)
	}
	if given == 0 && len(c.TLSIDs) > 0 {
		f.add("%s=%q: ids need TLS; set %s, %s and %s", EnvCallTLSIDs, strings.Join(c.TLSIDs, ","), EnvCallTLSCert, EnvCallTLSKey, EnvCallTLSCA)
	}
	for _, id := range c.TLSIDs {
		if !strings.HasPrefix(id, "spiffe://") {
			f.add("%s: id %q: want spiffe://DOMAIN/PATH, or spiffe://DOMAIN/PATH/*", EnvCallTLSIDs, id)
		}
	}
}

// credentials returns the credentials for both sides of connections. They are nil without
// TLS.
func (c CallConfig) credentials(log *slog.Logger) (credentials.TransportCredentials, error) {
	if c.TLSCert == "" {
		return nil, nil //nolint:nilnil // plain text is valid
	}
	creds, err := callwire.TLS{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA, IDs: c.TLSIDs}.Credentials(log)
	if err != nil {
		return nil, fmt.Errorf("%s, %s, %s: %w", EnvCallTLSCert, EnvCallTLSKey, EnvCallTLSCA, err)
	}
	return creds, nil
}

func (c CallConfig) withDefaults() CallConfig {
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, defaultCallMessageBytes)
	c.MaxStreams = cmp.Or(c.MaxStreams, defaultCallStreams)
	return c
}

// place describes the processes that run a deployment, as seen by this process.
type place struct {
	target string // target of the other processes that run the deployment; empty if none is known
	source discovery.Source
	absent bool // this process neither runs nor calls the deployment
}

// places returns the place of each deployment that this process does not run. The error
// has all faults.
func (c CallConfig) places(apps []*App, log *slog.Logger) (map[*Deployment]place, error) {
	list := map[*Deployment]place{}
	var faults faults
	for name, target := range c.Remote {
		a, d, err := findDeployment(apps, name)
		if err != nil {
			faults.add("%s: %w", EnvRemote, err)
			continue
		}
		source, err := discovery.Parse(target, discovery.Config{Log: log.With("app", a.name, "deployment", d.name), KubernetesAPI: c.KubernetesAPI})
		if err != nil {
			faults.add("%s: deployment %q: %w", EnvRemote, name, err)
		}
		if d == a.ingress {
			faults.add("%s: deployment %q is the ingress of app %q: its requests arrive here and cannot go on to another process; "+
				"to run it elsewhere only, leave it out of %s", EnvRemote, name, a.name, EnvDeployments)
		}
		list[d] = place{target: target, source: source}
	}
	if len(c.Deployments) == 0 {
		return list, errors.Join(faults...)
	}
	here := map[*Deployment]bool{}
	for _, name := range c.Deployments {
		_, d, err := findDeployment(apps, name)
		if err != nil {
			faults.add("%s: %w", EnvDeployments, err)
			continue
		}
		if list[d].target != "" {
			faults.add("deployment %q is in %s and in %s: want one of them", name, EnvDeployments, EnvRemote)
		}
		here[d] = true
	}
	for _, a := range apps {
		for _, d := range a.deployments() {
			if !here[d] && list[d].target == "" {
				list[d] = place{absent: true}
			}
		}
	}
	return list, errors.Join(faults...)
}

// findDeployment returns the deployment "NAME" or "APP/NAME". The caller must have checked
// the apps.
func findDeployment(apps []*App, name string) (*App, *Deployment, error) {
	if app, name, qualified := strings.Cut(name, "/"); qualified {
		a, err := findApp(apps, app)
		if err != nil {
			return nil, nil, err
		}
		d, err := a.find(name)
		return a, d, err
	}
	var of *App
	var found *Deployment
	var names []string
	for _, a := range apps {
		for _, d := range a.deployments() {
			names = append(names, d.name)
			if d.name != name {
				continue
			}
			if found != nil {
				return nil, nil, fmt.Errorf("apps %q and %q both have a deployment %q: write APP/%s", of.name, a.name, name, name)
			}
			of, found = a, d
		}
	}
	if found == nil {
		return nil, nil, fmt.Errorf("no app has a deployment %q%s", name, meant(name, names))
	}
	return of, found, nil
}
