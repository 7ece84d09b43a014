package otlpexporter

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The environment variables of OpenTelemetry's specification
// (https://opentelemetry.io/docs/specs/otel/protocol/exporter/). A variable with TRACES
// in its name overrides the variable of the same name without TRACES. An empty value
// counts as unset.
const (
	// EnvProtocol is http/protobuf (the default), http/json or grpc.
	EnvProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	EnvTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	// EnvEndpoint is the URL of the back end. The path /v1/traces is appended to it for
	// HTTP.
	EnvEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	// EnvTracesEndpoint is like EnvEndpoint, but nothing is appended to it.
	EnvTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	// EnvHeaders has headers for each call: name=value pairs, separated by commas, with
	// percent-encoded values.
	EnvHeaders       = "OTEL_EXPORTER_OTLP_HEADERS"
	EnvTracesHeaders = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	// EnvCompression is none (the default) or gzip.
	EnvCompression       = "OTEL_EXPORTER_OTLP_COMPRESSION"
	EnvTracesCompression = "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"
	// EnvTimeout is the timeout of a call in milliseconds; the default is 10000. A call
	// also ends before the host's deadline.
	EnvTimeout       = "OTEL_EXPORTER_OTLP_TIMEOUT"
	EnvTracesTimeout = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"
	// EnvCertificate is the path of a PEM file with the authorities to trust, in place of
	// the system's authorities.
	EnvCertificate       = "OTEL_EXPORTER_OTLP_CERTIFICATE"
	EnvTracesCertificate = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"
	// EnvClientCertificate and EnvClientKey are the paths of PEM files with the client's
	// certificate and key, for mutual TLS. Set both or none.
	EnvClientCertificate       = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
	EnvTracesClientCertificate = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE"
	EnvClientKey               = "OTEL_EXPORTER_OTLP_CLIENT_KEY"
	EnvTracesClientKey         = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY"
	// EnvInsecure disables TLS if it is true; the default is false. It applies only to
	// endpoints of gRPC without http:// or https://.
	EnvInsecure       = "OTEL_EXPORTER_OTLP_INSECURE"
	EnvTracesInsecure = "OTEL_EXPORTER_OTLP_TRACES_INSECURE"
)

const envPrefix = "OTEL_EXPORTER_OTLP_"

// envExportTimeout is the host's variable for the deadline of a call. It is named in
// errors.
const envExportTimeout = "SERVE_TRACING_EXPORT_TIMEOUT"

// EnvPatterns returns the variables that [New] reads, for pluginsdk.Spec.Env. It omits
// the variables for metrics and logs, which may hold other credentials. It also omits
// SSL_CERT_FILE, SSL_CERT_DIR and the variables of proxies, which New reads, because
// every plugin gets them. The caller owns the slice.
func EnvPatterns() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_TRACES_*", EnvProtocol, EnvEndpoint, EnvHeaders, EnvCompression, EnvTimeout,
		EnvCertificate, EnvClientCertificate, EnvClientKey, EnvInsecure,
	}
}

const (
	protocolHTTP     = "http/protobuf"
	protocolJSON     = "http/json"
	protocolGRPC     = "grpc"
	compressionNone  = "none"
	compressionGzip  = "gzip"
	defaultTimeout   = 10 * time.Second
	fromDefault      = "default"
	fromPlugin       = "default of the plugin"
	documentEndpoint = "exporter.endpoint"
)

type settings struct {
	protocol    string
	endpoint    endpoint
	headers     map[string]string // by name, in lower case
	headersFrom string
	gzip        bool
	timeout     time.Duration
	timeoutFrom string
	trust       trust
	proxy       proxyOf
	secrets     secrets
	log         *slog.Logger // the plugin's log; may be nil
}

// document is the part of the plugin's configuration that this package decodes.
type document struct {
	Exporter struct {
		Protocol          string            `yaml:"protocol"`
		Endpoint          string            `yaml:"endpoint"`
		Headers           map[string]string `yaml:"headers"`
		Compression       string            `yaml:"compression"`
		Timeout           time.Duration     `yaml:"timeout"`
		Certificate       string            `yaml:"certificate"`
		ClientCertificate string            `yaml:"client_certificate"`
		ClientKey         string            `yaml:"client_key"`
		Insecure          *bool             `yaml:"insecure"`
	} `yaml:"exporter"`
}

// value is the text of a setting, and the name of its source: a variable or a path in the
// configuration. An empty text means that the setting is not set.
type value struct{ text, from string }

func (v value) set() bool { return v.text != "" }

type reader struct {
	setup  pluginsdk.Setup
	doc    document
	faults []error
}

func (r *reader) fault(path, format string, args ...any) {
	r.faults = append(r.faults, &pluginsdk.ConfigError{Path: path, Err: fmt.Errorf(format, args...)})
}

func (r *reader) warn(path, text string) {
	if r.setup.Warn != nil {
		r.setup.Warn(path, text)
	}
}

// choose returns the first value that is set: of the variable with TRACES in its name, of
// the variable base, of the configuration, or else otherwise. It ignores the remaining
// values even if they are invalid, because the variable base may be meant for metrics or
// logs.
func (r *reader) choose(base, configured string, otherwise value) value {
	suffix := strings.TrimPrefix(base, envPrefix)
	for _, name := range []string{envPrefix + "TRACES_" + suffix, base} {
		if text := strings.TrimSpace(r.setup.Getenv(name)); text != "" {
			return value{text, name}
		}
	}
	if configured != "" {
		return value{configured, "exporter." + strings.ToLower(suffix)}
	}
	return otherwise
}

// readSettings reads each setting from its variables. If they are not set, it uses the
// configuration, and then d. It returns all errors joined, each with the name of the
// variable or the path in the configuration.
func readSettings(s pluginsdk.Setup, d Defaults) (settings, error) {
	r := &reader{setup: s}
	if err := s.DecodeConfig(&r.doc); err != nil {
		return settings{}, err
	}
	doc := r.doc.Exporter
	var c settings
	c.protocol = r.protocol(d)
	insecure := r.insecure()
	c.endpoint = r.endpoint(c.protocol, insecure, d)
	c.headers, c.headersFrom = r.headers(c.protocol, d)
	c.gzip = r.compression()
	c.timeout, c.timeoutFrom = r.timeout()
	c.trust = trust{
		authorities: r.choose(EnvCertificate, doc.Certificate, value{}),
		certificate: r.choose(EnvClientCertificate, doc.ClientCertificate, value{}),
		key:         r.choose(EnvClientKey, doc.ClientKey, value{}),
	}
	r.faults = append(r.faults, c.trust.validate(c.endpoint.secure && len(r.faults) == 0))
	if _, own := c.headers["authorization"]; !own && c.endpoint.authorization != "" {
		c.headers["authorization"] = c.endpoint.authorization
	}
	c.proxy = proxies(s.Getenv)
	c.secrets = secretsOf(c.headers)
	c.log = s.Log
	r.remark(c, insecure)
	return c, errors.Join(r.faults...)
}

func (r *reader) protocol(d Defaults) string {
	chosen := r.choose(EnvProtocol, r.doc.Exporter.Protocol, value{d.Protocol, fromPlugin})
	switch chosen.text {
	case "":
		return protocolHTTP
	case protocolHTTP, protocolJSON, protocolGRPC:
	default:
		r.fault(chosen.from, "%q is not known: want http/protobuf, http/json or grpc", plain(chosen.text))
	}
	return chosen.text
}

// insecure returns the setting "insecure" as "true", "false" or "", with its source. It
// records an error for another value.
func (r *reader) insecure() value {
	configured := ""
	if set := r.doc.Exporter.Insecure; set != nil {
		configured = strconv.FormatBool(*set)
	}
	chosen := r.choose(EnvInsecure, configured, value{})
	switch lower := strings.ToLower(chosen.text); lower {
	case "", "true", "false":
		chosen.text = lower
	default:
		r.fault(chosen.from, "%q is not known: want true or false", plain(chosen.text))
	}
	return chosen
}

func (r *reader) compression() bool {
	chosen := r.choose(EnvCompression, r.doc.Exporter.Compression, value{text: compressionNone})
	switch chosen.text {
	case compressionNone:
	case compressionGzip:
		return true
	default:
		r.fault(chosen.from, "%q is not known: want gzip or none", plain(chosen.text))
	}
	return false
}

// timeout returns the timeout of a call and the name of its setting. A variable has a
// number of milliseconds, and the configuration has a duration.
func (r *reader) timeout() (time.Duration, string) {
	const most = time.Hour
	name := "exporter.timeout"
	d := r.doc.Exporter.Timeout
	chosen := r.choose(EnvTimeout, "", value{})
	if chosen.set() {
		name = chosen.from
		ms, err := strconv.ParseInt(chosen.text, 10, 64)
		if err != nil || ms <= 0 || ms > most.Milliseconds() {
			r.fault(name, "%q: want whole milliseconds, 1 to %d, such as 10000", plain(chosen.text), most.Milliseconds())
			return defaultTimeout, name
		}
		d = time.Duration(ms) * time.Millisecond
	}
	switch {
	case d == 0:
		return defaultTimeout, EnvTimeout
	case d < time.Millisecond || d > most:
		r.fault(name, "%v: want 1ms to %v, such as 10s", d, most)
	}
	return d, name
}

// remark warns about settings that are valid but probably a mistake.
func (r *reader) remark(c settings, insecure value) {
	e := c.endpoint
	if insecure.set() && (c.protocol != protocolGRPC || e.schemed) {
		r.warn(insecure.from, fmt.Sprintf("applies only to grpc endpoints without http:// or https://; the scheme of %s decides", e.shown))
	}
	if !e.secure {
		for _, file := range []value{c.trust.authorities, c.trust.certificate, c.trust.key} {
			if file.set() {
				r.warn(file.from, fmt.Sprintf("is not used: %s has no TLS; write https://", e.shown))
			}
		}
	}
	const portGRPC, portHTTP = "4317", "4318"
	switch port := e.port(); {
	case c.protocol != protocolGRPC && port == portGRPC:
		r.warn(e.from, fmt.Sprintf("%s: port 4317 is usually OTLP/gRPC: set %s=grpc, or use port 4318", e.shown, EnvProtocol))
	case c.protocol == protocolGRPC && port == portHTTP:
		r.warn(e.from, fmt.Sprintf("%s: port 4318 is usually OTLP/HTTP: set %s=http/protobuf, or use port 4317", e.shown, EnvProtocol))
	}
	if c.protocol != protocolGRPC && e.url != nil {
		if hint := e.pathHint(); hint != "" {
			r.warn(e.from, e.shown+": "+hint)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.headers)) {
		if c.headers[name] == "" {
			r.warn(c.headersFrom, fmt.Sprintf("header %q has an empty value", name))
		}
	}
}

// announce logs the destination of the spans and the most important settings.
func (c *settings) announce(log *slog.Logger) {
	if log == nil {
		return
	}
	compression := compressionNone
	if c.gzip {
		compression = compressionGzip
	}
	attrs := []any{
		"endpoint", c.endpoint.shown, "from", c.endpoint.from, "protocol", c.protocol,
		"compression", compression, "tls", c.trust.describe(c.endpoint.secure), "timeout", c.timeout.String(), // as text, because slog would print the duration as a number
	}
	if len(c.headers) > 0 {
		attrs = append(attrs, "headers", strings.Join(slices.Sorted(maps.Keys(c.headers)), " "))
	}
	if via := c.via(); via != "" {
		attrs = append(attrs, "proxy", via)
	}
	log.Info("spans are sent by OTLP", attrs...)
}

// via returns the address of the proxy for the endpoint, without credentials, or "" if
// there is none. gRPC always uses the proxy for HTTPS, even without TLS.
func (c *settings) via() string {
	to := c.endpoint.url
	if c.protocol == protocolGRPC {
		to = &url.URL{Scheme: "https", Host: c.endpoint.host}
	}
	if to.Host == "" {
		return ""
	}
	proxy, err := c.proxy(to)
	if err != nil || proxy == nil {
		return ""
	}
	return shownURL(&url.URL{Scheme: proxy.Scheme, Host: proxy.Host})
}
