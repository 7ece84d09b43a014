package relay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/settings"
)

// The variables that ConfigFromEnv reads. Durations have a unit ("30s"). Sizes are in
// bytes or have a unit ("16MiB").
const (
	EnvSocket          = "SERVE_RELAY_SOCKET"
	EnvGRPC            = "SERVE_RELAY_GRPC" // host:port, or only a port of 127.0.0.1
	EnvHTTP            = "SERVE_RELAY_HTTP" // like SERVE_RELAY_GRPC, or unix:///path
	EnvWaitForResult   = "SERVE_RELAY_WAIT_FOR_RESULT"
	EnvLinger          = "SERVE_RELAY_LINGER"
	EnvMaxRequestBytes = "SERVE_RELAY_MAX_REQUEST_BYTES"
	EnvReceiveBytes    = "SERVE_RELAY_RECEIVE_BYTES"
	EnvMaxConnections  = "SERVE_RELAY_MAX_CONNECTIONS"
	EnvMaxStreams      = "SERVE_RELAY_MAX_STREAMS"
	EnvReadTimeout     = "SERVE_RELAY_READ_TIMEOUT"
	EnvIdleTimeout     = "SERVE_RELAY_IDLE_TIMEOUT"
	EnvTLSCert         = "SERVE_RELAY_TLS_CERT"
	EnvTLSKey          = "SERVE_RELAY_TLS_KEY"
	EnvTLSClientCA     = "SERVE_RELAY_TLS_CLIENT_CA"
	EnvToken           = "SERVE_RELAY_TOKEN" // the token, or ${env:NAME} for the value of another variable
	EnvTokenFile       = "SERVE_RELAY_TOKEN_FILE"
)

// Defaults of the settings.
const (
	// DefaultGRPCAddr and DefaultHTTPAddr are the addresses to which programs send OTLP by
	// default. The relay listens there if Config has no address.
	DefaultGRPCAddr        = "127.0.0.1:4317"
	DefaultHTTPAddr        = "127.0.0.1:4318"
	DefaultMaxRequestBytes = 16 << 20
	DefaultReceiveBytes    = 64 << 20
	DefaultMaxConnections  = 1024
	DefaultMaxStreams      = 100
	DefaultReadTimeout     = 30 * time.Second
	DefaultIdleTimeout     = 5 * time.Minute
)

// maxRequestBytes is the largest allowed value of Config.MaxRequestBytes.
const maxRequestBytes = 64 << 20

// Config holds the operator's settings of a relay. The zero value is valid. A number or a
// duration of zero means the default, unless the comment of the field has another meaning.
type Config struct {
	// Socket is the path of a Unix socket for gRPC. Empty means no socket.
	Socket string
	// GRPCAddr is the host:port for gRPC. An empty host means every address, and port 0 any
	// free port. Empty means no listener for gRPC, or DefaultGRPCAddr if no other address is
	// set.
	GRPCAddr string
	// HTTPAddr is the host:port for HTTP, or "unix://" and the path of a socket. Empty means
	// no listener for HTTP, or DefaultHTTPAddr if no other address is set.
	HTTPAddr string
	// WaitForResult delays the answer to a request until the plugins have delivered its
	// spans, unless the sender asks for another time. By default, the relay answers when it
	// has accepted the request.
	WaitForResult bool
	// Linger is the time without an open connection after which the relay ends, if no span
	// waits for a plugin. Zero means that the relay never ends by itself.
	Linger time.Duration
	// MaxRequestBytes bounds the size of a request in bytes, before and after decompression.
	// It is at most 64 MiB.
	MaxRequestBytes int
	// ReceiveBytes bounds the bytes of all requests that have not arrived completely. At
	// the bound, the connection that holds the most bytes is closed. It must be at least
	// MaxRequestBytes.
	ReceiveBytes int64
	// MaxConnections bounds the number of open connections. At the bound, a new connection
	// replaces another connection, if possible an idle connection of the peer with the most
	// connections. A busy connection is replaced only if its peer keeps more connections
	// than the new peer gets. If no connection can be replaced, the new connection is
	// closed. A peer is an IP address, a network (/64) of IPv6, or a process at the socket.
	MaxConnections int
	// MaxStreams bounds the number of concurrent calls on a gRPC connection.
	MaxStreams int
	// ReadTimeout bounds the time in which a request must arrive completely, and in which a
	// new connection must begin a request.
	ReadTimeout time.Duration
	// IdleTimeout is the time after which a connection without a request is closed.
	IdleTimeout time.Duration
	// TLSCert and TLSKey are the PEM files with the certificate and the key of the TCP
	// listeners. If they are empty, the listeners do not encrypt. TLSClientCA is a PEM file of
	// certificate authorities. If it is set, each sender needs a certificate from one of them.
	// Changed files are read again.
	TLSCert, TLSKey, TLSClientCA string
	// Token is the bearer token that senders over TCP must have. TokenFile is the path of a
	// file with this token, which is read again if it changes. Only one of them may be set. If
	// both are empty, senders need no token.
	Token, TokenFile string
}

// ConfigFromEnv reads the settings through getenv, which must behave like os.Getenv. An
// empty value counts as unset. The error joins all faults, each with the variable, the
// value and the allowed values.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	r := settings.NewReader(getenv)
	cfg := Config{
		Socket:          strings.TrimPrefix(getenv(EnvSocket), unixPrefix),
		GRPCAddr:        address(getenv(EnvGRPC)),
		HTTPAddr:        address(getenv(EnvHTTP)),
		WaitForResult:   r.Bool(EnvWaitForResult),
		Linger:          r.Duration(EnvLinger),
		MaxRequestBytes: int(r.Size(EnvMaxRequestBytes)),
		ReceiveBytes:    r.Size(EnvReceiveBytes),
		MaxConnections:  r.Count(EnvMaxConnections),
		MaxStreams:      r.Count(EnvMaxStreams),
		ReadTimeout:     r.Duration(EnvReadTimeout),
		IdleTimeout:     r.Duration(EnvIdleTimeout),
		TLSCert:         getenv(EnvTLSCert),
		TLSKey:          getenv(EnvTLSKey),
		TLSClientCA:     getenv(EnvTLSClientCA),
		Token:           strings.TrimSpace(getenv(EnvToken)),
		TokenFile:       getenv(EnvTokenFile),
	}
	if name, ok := strings.CutPrefix(cfg.Token, "${env:"); ok {
		if cfg.Token = getenv(strings.TrimSuffix(name, "}")); cfg.Token == "" {
			r.Add(fmt.Errorf("%s: the variable %s is not set", EnvToken, strings.TrimSuffix(name, "}")))
		}
	}
	// A setting that cannot be parsed is zero here, so Validate does not report it again.
	return cfg, errors.Join(r.Err(), cfg.Validate())
}

// address returns the address for a text, without blanks around it. A text that is only a
// port means a port of the loopback interface.
func address(text string) string {
	text = strings.TrimSpace(text)
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		return net.JoinHostPort("127.0.0.1", text)
	}
	return text
}

// Validate returns an error that joins all faults of the settings, each with the value and
// the allowed values. It returns nil if there is none.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, name string, seen any, want string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s=%q: want %s", name, fmt.Sprint(seen), want))
		}
	}
	check(c.Socket == "" || filepath.IsAbs(c.Socket) && !strings.HasSuffix(c.Socket, "/"), EnvSocket, c.Socket, "the absolute path of a socket")
	check(isAddress(c.GRPCAddr), EnvGRPC, c.GRPCAddr, wantAddress)
	path, unix := strings.CutPrefix(c.HTTPAddr, unixPrefix)
	check(unix && filepath.IsAbs(path) || isAddress(c.HTTPAddr), EnvHTTP, c.HTTPAddr, wantAddress+", or unix:///path")
	d := c.withDefaults()
	check(d.MaxRequestBytes >= 1024 && d.MaxRequestBytes <= maxRequestBytes, EnvMaxRequestBytes, c.MaxRequestBytes, "1KiB to 64MiB")
	check(d.ReceiveBytes >= int64(d.MaxRequestBytes), EnvReceiveBytes, c.ReceiveBytes, fmt.Sprintf("%s (%d) or more", EnvMaxRequestBytes, d.MaxRequestBytes))
	check(d.MaxConnections > 0, EnvMaxConnections, c.MaxConnections, "1 or more")
	check(d.MaxStreams > 0 && d.MaxStreams <= math.MaxInt32, EnvMaxStreams, c.MaxStreams, "1 or more")
	check(c.Linger >= 0, EnvLinger, c.Linger, "a duration above zero")
	check(d.ReadTimeout > 0, EnvReadTimeout, c.ReadTimeout, "a duration above zero")
	check(d.IdleTimeout > 0, EnvIdleTimeout, c.IdleTimeout, "a duration above zero")
	check((c.TLSCert == "") == (c.TLSKey == ""), EnvTLSKey, c.TLSKey, "a file if and only if "+EnvTLSCert+" has one")
	check(c.TLSClientCA == "" || c.TLSCert != "", EnvTLSClientCA, c.TLSClientCA, "none without "+EnvTLSCert)
	check(c.TokenFile == "" || c.Token == "", EnvTokenFile, c.TokenFile, "none beside "+EnvToken)
	return errors.Join(faults...)
}

// unixPrefix is the start of the address of a Unix socket.
const unixPrefix = "unix://"

const wantAddress = "host:port, or a port of 127.0.0.1"

// isAddress reports whether text is empty, or has the form host:port.
func isAddress(text string) bool {
	if text == "" {
		return true
	}
	_, port, err := net.SplitHostPort(text)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil
}

// isLoopback reports whether only programs on this machine can reach the address.
func isLoopback(addr string) bool {
	name, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// withDefaults returns c with the defaults in place of zeros.
func (c Config) withDefaults() Config {
	if c.Socket == "" && c.GRPCAddr == "" && c.HTTPAddr == "" {
		c.GRPCAddr, c.HTTPAddr = DefaultGRPCAddr, DefaultHTTPAddr
	}
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, DefaultMaxRequestBytes)
	c.ReceiveBytes = cmp.Or(c.ReceiveBytes, max(DefaultReceiveBytes, int64(c.MaxRequestBytes)))
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	c.MaxStreams = cmp.Or(c.MaxStreams, DefaultMaxStreams)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, DefaultReadTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	return c
}
