package serving

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/servetrace/servetrace/serving/internal/callwire"
)

// The environment variables of calls between processes.
const (
	EnvRemote              = "SERVE_REMOTE"                 // list of DEPLOYMENT=TARGET; default: none
	EnvDeployments         = "SERVE_DEPLOYMENTS"            // list of names; default: all deployments that are not remote
	EnvCallAddr            = "SERVE_CALL_ADDR"              // host:port; default: other processes cannot call this process
	EnvCallMaxMessageBytes = "SERVE_CALL_MAX_MESSAGE_BYTES" // default 67108864
	EnvCallMaxStreams      = "SERVE_CALL_MAX_STREAMS"       // default 10000
	EnvCallTLSCert         = "SERVE_CALL_TLS_CERT"          // default: no TLS
	EnvCallTLSKey          = "SERVE_CALL_TLS_KEY"
	EnvCallTLSCA           = "SERVE_CALL_TLS_CA"
	EnvCallTLSIDs          = "SERVE_CALL_TLS_IDS" // list of SPIFFE ids; default: any certificate of the CA is accepted
)

// envAPIPort is the variable with the port of the Kubernetes API. The variable envInPod has
// the host.
const envAPIPort = "KUBERNETES_SERVICE_PORT"

// The defaults of [CallConfig], which apply to fields that are zero, and the lower bound of
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

	// Remote has the deployments that other processes run, and the address of these
	// processes, the target. The key is the name of the deployment: "NAME", or "APP/NAME" if
	// several apps have a deployment of this name. A target is static:///host:port,host:port,
	// or dns:///host:port for a headless Service, or k8s:///namespace/service:port for the
	// EndpointSlices of a Service. The ingress of an app cannot be remote.
	Remote map[string]string

	// Deployments are the names of the deployments that this process runs. Empty: all
	// deployments that are not remote. If the ingress of an app is not among them, the app
	// takes no requests in this process.
	Deployments []string

	// MaxMessageBytes is the largest size of an encoded argument or result, and of each item
	// of a stream, in calls that this process makes or takes. Zero: 64 MiB.
	MaxMessageBytes int

	// TLSCert, TLSKey and TLSCA are PEM files for mutual TLS, for calls that this process
	// makes or takes. They have the certificate of this process, its key, and the authorities
	// that sign the certificates of the other processes. A process without such a certificate
	// is refused. Changed files are read again. If all three are empty, there is no TLS.
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

// targets reads a variable with a list of DEPLOYMENT=TARGET. An item without "=" continues
// the previous target, because a static target contains a list of addresses.
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

// check adds all errors of c to f, each with the value seen and the allowed values.
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

// credentials returns the TLS credentials for the connections that this process makes and
// takes. It returns nil if c has no TLS files.
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
