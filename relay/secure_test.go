package relay_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/relay"
	"github.com/servetrace/servetrace/test/testplugin"
)

// overBoth makes a rig listen at free ports for gRPC and HTTP, and at the socket.
func overBoth(_ *host.Config, c *relay.Config) { c.GRPCAddr, c.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0" }

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{pool: x509.NewCertPool()}
	text, key := a.issue(t, "authority")
	block, _ := pem.Decode(text)
	var err error
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	a.key = key
	a.pool.AddCert(a.cert)
	return a
}

// issue returns a certificate in PEM form, signed by the authority or, before there is
// one, by itself.
func (a authority) issue(t *testing.T, name string) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// files writes a certificate and its key, and returns their paths.
func (a authority) files(t *testing.T, folder, name string) (cert, key string) {
	t.Helper()
	text, private := a.issue(t, name)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	write(t, cert, text)
	return cert, key
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLS sends over both protocols with a client certificate and without, before and
// after the relay's certificate has changed.
func TestTLS(t *testing.T) {
	a, folder := newAuthority(t), t.TempDir()
	cert, key := a.files(t, folder, "first")
	ca := filepath.Join(folder, "ca.pem")
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	r := startRig(t, "record", overBoth, func(_ *host.Config, c *relay.Config) {
		c.TLSCert, c.TLSKey, c.TLSClientCA = cert, key, ca
	})
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	with := &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12, VerifyConnection: func(s tls.ConnectionState) error {
		seen = s.PeerCertificates[0].Subject.CommonName
		return nil
	}}
	send := func(cfg *tls.Config) (overGRPC, overHTTP error) {
		overGRPC, overHTTP = r.sendTLS(t, cfg)
		return overGRPC, overHTTP
	}
	if overGRPC, overHTTP := send(with); overGRPC != nil || overHTTP != nil || seen != "first" {
		t.Errorf("with a certificate: %v, %v; the relay is %q, want first", overGRPC, overHTTP, seen)
	}
	if overGRPC, overHTTP := send(&tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS12}); overGRPC == nil || overHTTP == nil {
		t.Errorf("without a certificate: %v, %v; want errors", overGRPC, overHTTP)
	}
	a.files(t, folder, "second")
	testplugin.WaitFor(t, "the second certificate", func() bool {
		overGRPC, overHTTP := send(with)
		return overGRPC == nil && overHTTP == nil && seen == "second"
	})
	write(t, cert, []byte("broken"))
	testplugin.WaitFor(t, "the message of a broken file", func() bool {
		overGRPC, overHTTP := send(with)
		return overGRPC == nil && overHTTP == nil && strings.Contains(r.log.String(), "the previous certificate stays")
	})
}

// TestReplacedClientCA replaces the authority of senders. The relay then takes certificates
// of the new one only, from a sender that resumes its session too.
func TestReplacedClientCA(t *testing.T) {
	old, next, folder := newAuthority(t), newAuthority(t), t.TempDir()
	cert, key := old.files(t, folder, "relay")
	ca := filepath.Join(folder, "ca.pem")
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: old.cert.Raw}))
	r := startRig(t, "record", overBoth, func(_ *host.Config, c *relay.Config) {
		c.TLSCert, c.TLSKey, c.TLSClientCA = cert, key, ca
	})
	sender := func(a authority) *tls.Config {
		pair, err := tls.LoadX509KeyPair(a.files(t, t.TempDir(), "sender"))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{
			RootCAs: old.pool, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(1),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
		}
	}
	ofOld, ofNext := sender(old), sender(next)
	if overGRPC, overHTTP := r.sendTLS(t, ofOld); overGRPC != nil || overHTTP != nil {
		t.Errorf("with a certificate of the authority: %v, %v", overGRPC, overHTTP)
	}
	if overGRPC, overHTTP := r.sendTLS(t, ofNext); overGRPC == nil || overHTTP == nil {
		t.Errorf("with a certificate of another authority: %v, %v; want errors", overGRPC, overHTTP)
	}
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: next.cert.Raw}))
	testplugin.WaitFor(t, "the new authority", func() bool {
		overGRPC, overHTTP := r.sendTLS(t, ofNext)
		return overGRPC == nil && overHTTP == nil
	})
	if overGRPC, overHTTP := r.sendTLS(t, ofOld); overGRPC == nil || overHTTP == nil {
		t.Errorf("with a certificate of the old authority: %v, %v; want errors", overGRPC, overHTTP)
	}
}

// sendTLS sends an empty request over both protocols.
func (r *rig) sendTLS(t *testing.T, cfg *tls.Config) (overGRPC, overHTTP error) {
	t.Helper()
	var target string
	for _, l := range r.Listeners() {
		if host, ok := strings.CutPrefix(l.Endpoint, "https://"); ok && l.Protocol == "grpc" {
			target = host
		}
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(credentials.NewTLS(cfg.Clone())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, overGRPC = coltracepb.NewTraceServiceClient(conn).Export(t.Context(), &coltracepb.ExportTraceServiceRequest{})
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, overHTTP := (&http.Client{Transport: transport}).Post(r.endpoint(t, "http")+"/v1/traces", typeProto, http.NoBody) //nolint:noctx // a test
	if overHTTP == nil {
		_ = resp.Body.Close()
	}
	return overGRPC, overHTTP
}

func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte("hunter2\n"))
	for name, set := range map[string]change{
		"value": func(_ *host.Config, c *relay.Config) { c.Token = "hunter2" },
		"file":  func(_ *host.Config, c *relay.Config) { c.TokenFile = file },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, "record", overBoth, set)
			tcp := ""
			for _, l := range r.Listeners() {
				if strings.HasPrefix(l.Endpoint, "http://") && l.Protocol == "grpc" {
					tcp = strings.TrimPrefix(l.Endpoint, "http://")
				}
			}
			conn, err := grpc.NewClient(tcp, insecureOption)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			for header, ok := range map[string]bool{"Bearer hunter2": true, "bearer hunter2": true, "Bearer hunter": false, "Basic hunter2": false, "": false} {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", header)
				_, err := coltracepb.NewTraceServiceClient(conn).Export(ctx, requestOf("t", 1, 10))
				if want := map[bool]codes.Code{true: codes.OK, false: codes.Unauthenticated}[ok]; status.Code(err) != want {
					t.Errorf("gRPC with %q: %v, want %v", header, err, want)
				}
				resp, _ := r.post(t, "/v1/traces", typeProto, encoded(t, requestOf("t", 1, 10)), "Authorization", header)
				if want := map[bool]int{true: 200, false: 401}[ok]; resp.StatusCode != want || !ok && resp.Header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("HTTP with %q: %d, want %d", header, resp.StatusCode, want)
				}
			}
			if _, err := r.client(t).Export(t.Context(), requestOf("local", 1, 10)); err != nil {
				t.Errorf("over the socket: %v", err)
			}
			if strings.Contains(r.log.String(), "hunter2") {
				t.Error("the log has the token")
			}
			if name == "value" {
				return
			}
			write(t, file, []byte("correct horse"))
			testplugin.WaitFor(t, "the new token", func() bool {
				resp, _ := r.post(t, "/v1/traces", typeProto, nil, "Authorization", "Bearer correct horse")
				return resp.StatusCode == http.StatusOK
			})
		})
	}
}

func TestOpenRelayIsLoud(t *testing.T) {
	for _, c := range []struct{ addr, token, want string }{
		{"127.0.0.1:0", "", ""},
		{"0.0.0.0:0", "", "THE RELAY IS OPEN to other machines; it lacks encryption (SERVE_RELAY_TLS_CERT) and authentication (SERVE_RELAY_TOKEN_FILE or SERVE_RELAY_TLS_CLIENT_CA)"},
		{"0.0.0.0:0", "x", "THE RELAY IS OPEN to other machines; it lacks encryption (SERVE_RELAY_TLS_CERT)"},
	} {
		r := startRig(t, "record", func(_ *host.Config, cfg *relay.Config) { cfg.HTTPAddr, cfg.Token = c.addr, c.token })
		if log := r.log.String(); !strings.Contains(log, c.want) || c.want == "" && strings.Contains(log, "OPEN") {
			t.Errorf("at %s with token %q: log %q, want %q", c.addr, c.token, log, c.want)
		}
	}
}

func TestFaultsOfSettings(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{}, ""},
		{map[string]string{"SERVE_RELAY_GRPC": " 4317 ", "SERVE_RELAY_HTTP": "unix:///run/x.sock", "SERVE_RELAY_SOCKET": "unix:///run/y.sock"}, ""},
		{map[string]string{"SERVE_RELAY_HTTP": "unix://x"}, `SERVE_RELAY_HTTP="unix://x": want host:port, or a port of 127.0.0.1, or unix:///path`},
		{map[string]string{"SERVE_RELAY_MAX_REQUEST_BYTES": "1GiB"}, `SERVE_RELAY_MAX_REQUEST_BYTES="1073741824": want 1KiB to 64MiB`},
		{map[string]string{"SERVE_RELAY_TLS_CERT": "x"}, `SERVE_RELAY_TLS_KEY="": want a file if and only if SERVE_RELAY_TLS_CERT has one`},
		{map[string]string{"SERVE_RELAY_TLS_CLIENT_CA": "x"}, `SERVE_RELAY_TLS_CLIENT_CA="x": want none without SERVE_RELAY_TLS_CERT`},
		{map[string]string{"SERVE_RELAY_TOKEN": "secret", "SERVE_RELAY_TOKEN_FILE": "x"}, `SERVE_RELAY_TOKEN_FILE="x": want none beside SERVE_RELAY_TOKEN`},
		{map[string]string{"SERVE_RELAY_TOKEN": "${env:NOTHING}"}, `SERVE_RELAY_TOKEN: the variable NOTHING is not set`},
		{map[string]string{"SERVE_RELAY_LINGER": "soon", "SERVE_RELAY_MAX_STREAMS": "-1"}, "SERVE_RELAY_LINGER=\"soon\": want a duration above zero, such as 200ms or 10s\nSERVE_RELAY_MAX_STREAMS=\"-1\": want a whole number from 1 to 2147483647"},
	} {
		_, err := relay.ConfigFromEnv(func(name string) string { return c.env[name] })
		if got := textOf(err); got != c.want {
			t.Errorf("%v: %q, want %q", c.env, got, c.want)
		}
	}
	cfg, err := relay.ConfigFromEnv(func(name string) string {
		return map[string]string{"SERVE_RELAY_TOKEN": "${env:SECRET}", "SECRET": "hunter2", "SERVE_RELAY_GRPC": "4317"}[name]
	})
	if err != nil || cfg.Token != "hunter2" || cfg.GRPCAddr != "127.0.0.1:4317" {
		t.Errorf("token %q, address %q, %v", cfg.Token, cfg.GRPCAddr, err)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
