package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/peers/peer"
	"github.com/servetrace/servetrace/test/testplugin"
)

// pair is a server's certificate, which signs itself, and its key.
func pair(t *testing.T, name string, until time.Time) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: until.Add(-48 * time.Hour), NotAfter: until, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, file := range []struct {
		path *string
		kind string
		der  []byte
	}{{&cert, "CERTIFICATE", public}, {&key, "PRIVATE KEY", private}} {
		*file.path = filepath.Join(dir, strings.Fields(file.kind)[0]+".pem")
		if err := os.WriteFile(*file.path, pem.EncodeToMemory(&pem.Block{Type: file.kind, Bytes: file.der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestWrongCertificates: nothing is sent to a server that the plugin does not trust. After
// the operator has mended it and reloaded, the waiting spans arrive.
func TestWrongCertificates(t *testing.T) {
	tomorrow := time.Now().Add(24 * time.Hour)
	for _, c := range []struct {
		name, of, reason string
		until            time.Time
		unknown          bool
	}{
		{name: "unknown authority", of: "127.0.0.1", until: tomorrow, unknown: true, reason: "from an authority unknown to this machine"},
		{name: "expired", of: "127.0.0.1", until: time.Now().Add(-time.Hour), reason: "has a certificate that is not valid at this time"},
		{name: "another name", of: "collector.test", until: tomorrow, reason: "has a certificate for another name"},
	} {
		for _, protocol := range []string{"http/protobuf", "grpc"} {
			t.Run(c.name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				cert, key := pair(t, c.of, c.until)
				collector := peer.StartCollector(t, peer.WithTLS(cert, key))
				endpoint := collector.HTTP()
				if protocol == "grpc" {
					endpoint = collector.GRPC()
				}
				list, env := otlp(t, protocol, endpoint)
				if !c.unknown {
					env["OTEL_EXPORTER_OTLP_CERTIFICATE"] = cert
				}
				s := startService(t, list, env)
				for range 100 {
					s.request()
				}
				s.await("otlp", "calls that fail", func(p admin.Plugin) bool { return p.Calls.Ended["UNAVAILABLE"] >= 3 })
				s.wantReason("otlp", "UNAVAILABLE", c.reason)
				p := s.plugin("otlp")
				if p.Spans.Delivered > 0 || p.Spans.Lost() > 0 || len(collector.Spans()) > 0 {
					t.Errorf("%+v, and %d messages at the Collector; want all to wait", p.Spans, len(collector.Spans()))
				}
			})
		}
	}
}

// tunnel is a proxy that knows CONNECT and nothing else, and takes every name
// for one machine.
type tunnel struct {
	to, password string
	broken       func(w http.ResponseWriter) // nil: it works
	mu           sync.Mutex
	asked        []string
}

func (p *tunnel) act(broken func(w http.ResponseWriter)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

func (p *tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	broken := p.broken
	p.mu.Unlock()
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+p.password))
	switch {
	case r.Header.Get("Proxy-Authorization") != want:
		http.Error(w, "who are you", http.StatusProxyAuthRequired)
		return
	case broken != nil:
		broken(w)
		return
	}
	there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", p.to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(there, here); _ = there.(*net.TCPConn).CloseWrite() })
	_, _ = io.Copy(here, there)
	_ = here.Close()
	both.Wait()
}

// TestProxyBetween: to a Collector whose name only the proxy knows. The proxy
// refuses for a while, which loses nothing.
func TestProxyBetween(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			cert, key := pair(t, "collector.test", time.Now().Add(24*time.Hour))
			collector := peer.StartCollector(t, peer.WithTLS(cert, key))
			to := strings.TrimPrefix(collector.HTTP(), "https://")
			if protocol == "grpc" {
				to = strings.TrimPrefix(collector.GRPC(), "https://")
			}
			between := &tunnel{to: to, password: secret}
			between.act(func(w http.ResponseWriter) { http.Error(w, "the tunnel is closed", http.StatusServiceUnavailable) })
			web := httptest.NewServer(between)
			defer web.Close()
			defer web.CloseClientConnections()
			list, env := otlp(t, protocol, "https://collector.test:4318", "OTEL_EXPORTER_OTLP_CERTIFICATE", cert,
				"HTTPS_PROXY", "http://user:"+secret+"@"+web.Listener.Addr().String(), host.EnvExportTimeout, "5s")
			s := startService(t, list, env)
			for range 100 {
				s.request()
			}
			s.await("otlp", "calls that fail", func(p admin.Plugin) bool { return p.Calls.Ended["UNAVAILABLE"] >= 2 })
			between.act(nil)
			s.delivers("otlp")
			s.settled("otlp")
			s.wantAt("otlp", ids(collector.WaitSpans(400)), false)
			s.wantReason("otlp", "UNAVAILABLE", "cannot be reached through the proxy")
			if asked := between.asked[0]; asked != "CONNECT collector.test:4318" {
				t.Errorf("the proxy was asked for %q", asked)
			}
			for _, place := range []string{s.log.String(), s.get("/-/tracing.json")} {
				if strings.Contains(place, secret) {
					t.Error("the proxy's password is shown")
				}
			}
		})
	}
}

// TestMendedSettingsTakeWhatWaits: the document has the wrong endpoint. It is
// mended, and the plugin reloaded: nothing is lost.
func TestMendedSettingsTakeWhatWaits(t *testing.T) {
	b := startBackend(t)
	document := filepath.Join(t.TempDir(), "otlp.yaml")
	write := func(endpoint string) {
		if err := os.WriteFile(document, []byte("exporter: {endpoint: \""+endpoint+"\"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	write(gone.URL)
	s := startService(t, "otlp="+peer.Plugin(t, "otlp"), map[string]string{host.EnvPluginConfig: "otlp=" + document})
	for range 50 {
		s.request()
	}
	s.await("otlp", "calls that fail", func(p admin.Plugin) bool { return p.Calls.Ended["UNAVAILABLE"] >= 2 })
	write(b.http)
	if err := s.host.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled("otlp")
	s.wantAt("otlp", b.received(), false)
	if got := s.plugin("otlp").Spans.Delivered; got != 200 {
		t.Errorf("%d spans delivered, want 200", got)
	}
	s.wantReason("otlp", "UNAVAILABLE", "has no listener")
	testplugin.WaitFor(t, "the end of the trouble in the log", func() bool {
		return strings.Contains(s.log.String(), "spans are delivered again")
	})
	s.await("otlp", "ready", func(p admin.Plugin) bool { return p.State == "ready" })
}
