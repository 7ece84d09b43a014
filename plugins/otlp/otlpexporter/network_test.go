package otlpexporter

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/pluginsdk"
)

// fails checks that an error is tried again, and that its text has these parts,
// in order, of which the first is its beginning.
func fails(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got delivered, want an error: %s", parts)
	}
	if pluginsdk.Final(err) {
		t.Errorf("final: %v", err)
	}
	text := asHost(err).Error()
	rest, found := strings.CutPrefix(text, parts[0])
	for _, part := range parts[1:] {
		if found {
			_, rest, found = strings.Cut(rest, part)
		}
	}
	if !found {
		t.Errorf("\ngot  %s\nwant %s", text, strings.Join(parts, " … "))
	}
}

// raw accepts connections, does something with each, and closes it.
func raw(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			do(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// closedPort returns an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func plainGRPC(t *testing.T) string {
	t.Helper()
	return serveGRPC(t, nil).address
}

// TestWrongCounterpart: the most frequent faults of operators.
func TestWrongCounterpart(t *testing.T) {
	ca := newAuthority(t)
	plainHTTP := receive(t, nil).Listener.Addr().String()
	tlsHTTP := receiveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.server(nil)}}, nil).Listener.Addr().String()
	nobody := closedPort(t)
	grpcServer := plainGRPC(t)
	grpcTLS := serveGRPC(t, &tls.Config{Certificates: []tls.Certificate{ca.server(nil)}}).address
	cuts := raw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); _ = c.(*net.TCPConn).SetLinger(0) })
	const grpcProtocol = EnvProtocol + "=grpc"
	for _, c := range []struct {
		name string
		env  []string
		want []string
	}{
		{"nobody listens", []string{EnvEndpoint + "=http://" + nobody}, []string{
			"http://" + nobody + "/v1/traces has no listener: start the receiver there, or set its address in OTEL_EXPORTER_OTLP_ENDPOINT (dial tcp " +
				nobody + ": connect: connection refused)",
		}},
		{"TLS to a plain server", []string{EnvEndpoint + "=https://" + plainHTTP}, []string{
			"https://" + plainHTTP + "/v1/traces answers without TLS: write http:// in OTEL_EXPORTER_OTLP_ENDPOINT, or use a port of the receiver that has TLS (",
		}},
		{"cut", []string{EnvEndpoint + "=http://" + cuts}, []string{
			"http://" + cuts + "/v1/traces cut the connection before it answered: if that goes on, it may be a port for gRPC (set OTEL_EXPORTER_OTLP_PROTOCOL=grpc) (",
		}},

		{"gRPC, nobody listens", []string{grpcProtocol, EnvEndpoint + "=http://" + nobody}, []string{
			"http://" + nobody + " has no listener: start the receiver there, or set its address in OTEL_EXPORTER_OTLP_ENDPOINT (", "connection refused",
		}},
		{"gRPC, no socket", []string{grpcProtocol, EnvEndpoint + "=unix:///no/such.sock"}, []string{
			"unix:///no/such.sock has no listener: ", "no such file or directory",
		}},
		{"gRPC with TLS to a plain server", []string{grpcProtocol, EnvEndpoint + "=https://" + grpcServer}, []string{
			"https://" + grpcServer + " answers without TLS: write http:// in OTEL_EXPORTER_OTLP_ENDPOINT, or use a port",
		}},
		{"gRPC without a scheme to a plain server", []string{grpcProtocol, EnvEndpoint + "=" + grpcServer}, []string{
			grpcServer + " answers without TLS: set OTEL_EXPORTER_OTLP_INSECURE=true, or write http:// in front of it in OTEL_EXPORTER_OTLP_ENDPOINT (",
		}},
		{"gRPC without TLS to a server that has it", []string{grpcProtocol, EnvEndpoint + "=http://" + grpcTLS}, []string{
			"http://" + grpcTLS + " cut the connection before it answered: if that goes on, it may want TLS (write https:// in OTEL_EXPORTER_OTLP_ENDPOINT), " +
				"or be for HTTP (set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf) (",
		}},
		{"gRPC to an HTTP port", []string{grpcProtocol, EnvEndpoint + "=http://" + plainHTTP}, []string{
			"http://" + plainHTTP + " is not a gRPC server: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or use the receiver's port for gRPC, usually 4317 (",
		}},
		{"gRPC, unknown authority", []string{grpcProtocol, EnvEndpoint + "=https://" + grpcTLS}, []string{
			"https://" + grpcTLS + " has a certificate from an authority unknown to this machine: set OTEL_EXPORTER_OTLP_CERTIFICATE to the authority's PEM file (",
		}},
		{"unknown authority", []string{EnvEndpoint + "=https://" + tlsHTTP}, []string{
			"https://" + tlsHTTP + "/v1/traces has a certificate from an authority unknown to this machine: " +
				"set OTEL_EXPORTER_OTLP_CERTIFICATE to the authority's PEM file (",
		}},
		{"gRPC, cut", []string{grpcProtocol, EnvEndpoint + "=http://" + cuts}, []string{"http://" + cuts + " "}},
	} {
		t.Run(c.name, func(t *testing.T) { fails(t, export(t, open(t, env(c.env...))), c.want...) })
	}
	// The server speaks first and then hangs up, which races with the request:
	// net/http may meet the end of the connection and not know why it is one.
	t.Run("HTTP to a gRPC port", func(t *testing.T) {
		e := open(t, env(EnvEndpoint+"=http://"+grpcServer))
		err := export(t, e)
		for i := 0; i < 100 && err != nil && strings.Contains(err.Error(), "cut the connection"); i++ {
			err = export(t, e)
		}
		fails(t, err, "http://"+grpcServer+"/v1/traces speaks HTTP/2 at once, as gRPC does, not OTLP/HTTP: "+
			"set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use the receiver's port for HTTP, usually 4318 (")
	})
	t.Run("HTTP to a TLS server", func(t *testing.T) { // it answers: that is final
		err := export(t, open(t, env(EnvEndpoint+"=http://"+tlsHTTP)))
		want := "http://" + tlsHTTP + `/v1/traces answered 400 Bad Request: "Client sent an HTTP request to an HTTPS server."; ` +
			"it wants TLS: write https:// in OTEL_EXPORTER_OTLP_ENDPOINT"
		if err == nil || err.Error() != want || !pluginsdk.Final(err) {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	})
	t.Run("HTTP with TLS to a gRPC server", func(t *testing.T) {
		err := export(t, open(t, env(EnvEndpoint+"=https://"+grpcTLS, EnvCertificate+"="+ca.file)))
		if err == nil || !strings.HasPrefix(err.Error(), "https://"+grpcTLS+"/v1/traces speaks gRPC, not OTLP/HTTP (") || !pluginsdk.Final(err) {
			t.Errorf("got %v", err)
		}
	})
}

// TestFaultsWithoutServers tests the texts of Go and gRPC for faults that need more than
// one machine.
func TestFaultsWithoutServers(t *testing.T) {
	c, err := readSettings(env(EnvTracesEndpoint+"=http://collector:4318/v1/traces"), Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "has a name that cannot be looked up: check it in OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, and this machine's DNS"
	for text, want := range map[string]string{
		"dial tcp: lookup collector: no such host":                                  name,
		"dial tcp: lookup collector: i/o timeout":                                   name,
		"dial tcp: lookup collector on 10.0.0.1:53: server misbehaving":             name,
		"name resolver error: produced zero addresses":                              name,
		"dns: A record lookup error: lookup collector on 10.0.0.1:53: no such host": name,
		"dial tcp 10.0.0.2:4318: connect: no route to host":                         "cannot be reached from this network: check it in OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"dial tcp 10.0.0.2:4318: i/o timeout": "did not accept a connection in time: check that it runs, that no firewall drops its packets, " +
			"and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"net/http: TLS handshake timeout": "did not accept a connection in time: check that it runs, that no firewall drops its packets, " +
			"and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
	} {
		fails(t, errors.New((&adviser{c}).explained(text, nil)), "http://collector:4318/v1/traces "+want+" ("+text+")")
	}
	fails(t, errors.New((&adviser{c}).explained("something\nelse", nil)), "http://collector:4318/v1/traces: something else")
}

// TestTLS: certificates that are right and wrong, over both ways.
func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	ca.client(cert, key, "us")
	strangerCert, strangerKey := filepath.Join(dir, "stranger.pem"), filepath.Join(dir, "stranger.key")
	other.client(strangerCert, strangerKey, "stranger")
	good := ca.server(nil)
	expired := ca.server(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Unix(1, 0), NotAfter: time.Unix(2, 0)})
	elsewhere := ca.server(&x509.Certificate{DNSNames: []string{"elsewhere.example"}})
	mutual := func() *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{good}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	}
	trusting := EnvCertificate + "=" + ca.file
	for _, c := range []struct {
		name   string
		server *tls.Config
		env    []string
		want   string // empty: delivered
	}{
		{"trusted", &tls.Config{Certificates: []tls.Certificate{good}}, []string{trusting}, ""},
		{"another authority", &tls.Config{Certificates: []tls.Certificate{good}}, []string{EnvCertificate + "=" + other.file}, "has a certificate from none of the authorities in \"" +
			other.file + "\": check OTEL_EXPORTER_OTLP_CERTIFICATE ("},
		{"expired", &tls.Config{Certificates: []tls.Certificate{expired}}, []string{trusting}, "has a certificate that is not valid at this time: renew it, or set this machine's clock ("},
		{"another name", &tls.Config{Certificates: []tls.Certificate{elsewhere}}, []string{trusting}, "has a certificate for another name: " +
			"use a name of the certificate in OTEL_EXPORTER_OTLP_ENDPOINT, or renew it with this name ("},
		{"mutual", mutual(), []string{trusting, EnvClientCertificate + "=" + cert, EnvClientKey + "=" + key}, ""},
		{"mutual, by traces' own", mutual(), []string{
			trusting, EnvTracesClientCertificate + "=" + cert, EnvClientCertificate + "=" + strangerCert, EnvTracesClientKey + "=" + key, EnvClientKey + "=" + strangerKey,
		}, ""},
		{"mutual without one", mutual(), []string{trusting}, ": if it wants a client's certificate, " +
			"set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY ("},
		{"mutual with a stranger's", mutual(), []string{trusting, EnvClientCertificate + "=" + strangerCert, EnvClientKey + "=" + strangerKey}, ": " +
			"check the certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE ("},
	} {
		t.Run("HTTP/"+c.name, func(t *testing.T) {
			back := receiveTLS(t, c.server.Clone(), nil)
			err := export(t, open(t, env(append(c.env, EnvEndpoint+"="+back.URL)...)))
			if c.want != "" {
				fails(t, err, back.URL+"/v1/traces ", c.want)
			} else if err != nil || back.last(t).ProtoMajor != 2 {
				t.Errorf("got %v over %s, want delivered over HTTP/2", err, back.last(t).Proto)
			}
		})
		t.Run("gRPC/"+c.name, func(t *testing.T) {
			back := serveGRPC(t, c.server.Clone())
			err := export(t, open(t, env(append(c.env, EnvProtocol+"=grpc", EnvEndpoint+"=https://"+back.address)...)))
			if c.want != "" {
				fails(t, err, "https://"+back.address+" ", c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRenewedFiles: certificates are replaced while the plugin runs.
func TestRenewedFiles(t *testing.T) {
	for _, protocol := range []string{protocolHTTP, protocolGRPC} {
		t.Run(protocol, func(t *testing.T) {
			old, fresh := newAuthority(t), newAuthority(t)
			dir := t.TempDir()
			ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
			old.writeTo(ca)
			old.client(cert, key, "us")
			mutual := func(a *authority) *tls.Config {
				return &tls.Config{Certificates: []tls.Certificate{a.server(nil)}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
			}
			// One address, with a server that is replaced by a server of the new
			// authority.
			current := mutual(old)
			config := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				c := current.Clone()
				c.NextProtos = []string{"h2", "http/1.1"}
				return c, nil
			}, Certificates: current.Certificates}
			var address string
			var drop func()
			if protocol == protocolHTTP {
				back := receiveTLS(t, config, nil)
				address, drop = back.URL, back.CloseClientConnections
			} else {
				back := serveGRPC(t, config)
				address, drop = "https://"+back.address, back.drop
			}
			e := open(t, env(EnvProtocol+"="+protocol, EnvEndpoint+"="+address, EnvCertificate+"="+ca, EnvClientCertificate+"="+cert, EnvClientKey+"="+key))
			if err := export(t, e); err != nil {
				t.Fatal(err)
			}
			current = mutual(fresh)
			drop()
			distrusted := func(err error) bool { return err != nil && strings.Contains(err.Error(), "none of the authorities") }
			if err := eventually(t, e, distrusted); !distrusted(err) {
				t.Errorf("got %v, want distrust", err)
			}
			fresh.writeTo(ca)
			fresh.client(cert, key, "us")
			if err := eventually(t, e, func(err error) bool { return err == nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRenewedClientCertificate: the next connection has the new certificate. A
// certificate that does not match its key is not used.
func TestRenewedClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	ca.client(cert, key, "first")
	back := receiveTLS(t, &tls.Config{
		Certificates: []tls.Certificate{ca.server(nil)}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil)
	e := open(t, env(EnvEndpoint+"="+back.URL, EnvCertificate+"="+ca.file, EnvClientCertificate+"="+cert, EnvClientKey+"="+key))
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "first"},
		{func() { ca.client(cert, filepath.Join(dir, "other.key"), "torn") }, "first"},
		{func() { ca.client(cert, key, "second") }, "second"},
	} {
		step.change()
		back.CloseClientConnections()
		if err := eventually(t, e, func(err error) bool { return err == nil }); err != nil {
			t.Fatal(err)
		}
		if got := back.last(t).TLS.PeerCertificates[0].Subject.CommonName; got != step.want {
			t.Errorf("certificate is the %s, want the %s", got, step.want)
		}
	}
}

// eventually exports until the outcome is as wanted, for a connection that ends
// takes its time.
func eventually(t *testing.T, e pluginsdk.Exporter, wanted func(error) bool) error {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		err := export(t, e)
		if wanted(err) || time.Now().After(deadline) {
			return err
		}
	}
}

// TestRedirects keeps method, body and headers on the way to the same machine.
func TestRedirects(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		back := receive(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/traces":
				w.Header().Set("Location", "moved?x=1") // relative
				w.WriteHeader(http.StatusPermanentRedirect)
			case "/v1/moved":
				http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
			}
		})
		if err := export(t, open(t, env(EnvEndpoint+"="+back.URL, EnvHeaders+"=x-key=a", EnvCompression+"="+compression))); err != nil {
			t.Fatal(err)
		}
		if n := len(back.all()); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
		got := back.last(t)
		if got.Method != http.MethodPost || got.URL.Path != "/there" || got.Header.Get("X-Key") != "a" || !bytes.Equal(got.body, some(t, 1)) {
			t.Errorf("%s: redirected to %s %s, %v, %d bytes", compression, got.Method, got.URL, got.Header, len(got.body))
		}
	}
	round := receive(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	})
	err := export(t, open(t, env(EnvEndpoint+"="+round.URL)))
	if n := len(round.all()); n != 1+maxRedirects || !pluginsdk.Final(err) || !strings.Contains(err.Error(), "it redirects to "+round.URL) {
		t.Errorf("going round: %d requests, %v", n, err)
	}
}

// TestRedirectsAreNamed: an error names the address that was called, and the
// endpoint that led there.
func TestRedirectsAreNamed(t *testing.T) {
	refusing := receive(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for _, c := range []struct{ to, want string }{
		{"http://" + closedPort(t), "TO, to which FROM redirects, has no listener: start the receiver there, or set its address in OTEL_EXPORTER_OTLP_ENDPOINT ("},
		{refusing.URL, "TO answered 403 Forbidden; "},
	} {
		to := c.to + "/there"
		back := receive(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) })
		err := export(t, open(t, env(EnvEndpoint+"="+back.URL)))
		want := strings.NewReplacer("TO,", to+",", "TO ", to+" ", "FROM", back.URL+"/v1/traces").Replace(c.want)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	// One that does not answer in time, without the time.
	c, err := readSettings(env(EnvEndpoint+"=http://collector:4318"), Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	of := &call{at: &url.URL{Scheme: "http", Host: "collector:9999", Path: "/there"}}
	of.connected.Store(true)
	fails(t, (&adviser{c}).slow(of, time.Second, EnvTimeout),
		"no answer from http://collector:9999/there, to which http://collector:4318/v1/traces redirects, within 1s (OTEL_EXPORTER_OTLP_TIMEOUT sets the time)")
}

// TestRedirectBeforeTheBodyIsRead: the whole batch arrives where it leads.
func TestRedirectBeforeTheBodyIsRead(t *testing.T) {
	noise := make([]byte, 16<<20) // more than the sockets' buffers hold
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	content := field(1, noise)
	there := receive(t, nil)
	back := httptest.NewServer(http.RedirectHandler(there.URL, http.StatusTemporaryRedirect))
	defer back.Close()
	for _, compression := range []string{compressionNone, compressionGzip} {
		e := open(t, env(EnvEndpoint+"="+back.URL, EnvCompression+"="+compression))
		if err := e.Export(t.Context(), pluginsdk.NewBatch(content)); err != nil {
			t.Fatal(err)
		}
		if got := there.last(t).body; !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes of %d arrived, or others", compression, len(got), len(content))
		}
	}
}

// TestGiantAnswers: a small part of the answer is read, and the result is the same.
func TestGiantAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		code int
		bomb bool
		want string
	}{
		{"64 MiB of success", 200, false, ""},
		{"64 MiB of refusal", 400, false, "answered 400 Bad Request"},
		{"gzip bomb of success", 200, true, ""},
		{"gzip bomb of refusal", 400, true, "answered 400 Bad Request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			size := int64(64 << 20)
			if c.bomb { // 8 KiB on the way
				size = 8 << 20
			}
			done := make(chan int64, 1)
			back := receive(t, func(w http.ResponseWriter, _ *http.Request) {
				var to io.Writer = w
				if c.bomb {
					w.Header().Set("Content-Encoding", "gzip")
				}
				w.WriteHeader(c.code)
				if c.bomb {
					to = newGzip(w)
				}
				n, _ := io.Copy(to, io.LimitReader(zeros{}, size))
				done <- n
			})
			err := export(t, open(t, env(EnvEndpoint+"="+back.URL)))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 3*maxText) {
				t.Errorf("got %v", err)
			}
			if n := <-done; !c.bomb && n == size {
				t.Error("all of it was taken")
			}
		})
	}
}

// TestSwitchedProtocol: a server that answers 101 and keeps the connection does not block
// the call.
func TestSwitchedProtocol(t *testing.T) {
	back := raw(t, func(conn net.Conn) {
		from := bufio.NewReader(conn)
		req, err := http.ReadRequest(from)
		if err == nil {
			_, err = io.Copy(io.Discard, req.Body)
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: any\r\n\r\n")
		_, _ = from.ReadByte() // until the plugin hangs up
	})
	err := export(t, open(t, env(EnvEndpoint+"=http://"+back)))
	if !pluginsdk.Final(err) || !strings.Contains(err.Error(), "answered 101 Switching Protocols") {
		t.Errorf("got %v, final %v, want what it answered, and final", err, pluginsdk.Final(err))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestSlow: the exporter's timeout ends before the host's, and its error names the cause.
func TestSlow(t *testing.T) {
	release := make(chan struct{})
	back := receive(t, func(http.ResponseWriter, *http.Request) { <-release })
	slowGRPC := serveGRPC(t, nil)
	slowGRPC.answer = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	t.Cleanup(func() { close(release) }) // before the servers close
	for _, c := range []struct {
		name    string
		env     []string
		host    time.Duration
		want    []string
		counted string
	}{
		{"own", []string{EnvEndpoint + "=" + back.URL, EnvTimeout + "=200"}, patience, []string{
			"no answer from " + back.URL + "/v1/traces within 200ms (OTEL_EXPORTER_OTLP_TIMEOUT sets the time)",
		}, "DEADLINE_EXCEEDED"},
		{"host's", []string{EnvEndpoint + "=" + back.URL}, 3 * time.Second, []string{
			"no answer from " + back.URL + "/v1/traces within 2.7", "s (SERVE_TRACING_EXPORT_TIMEOUT sets the time)",
		}, "DEADLINE_EXCEEDED"},
		{"gRPC, own", []string{EnvProtocol + "=grpc", EnvEndpoint + "=http://" + slowGRPC.address, EnvTimeout + "=300"}, patience, []string{
			"no answer from http://" + slowGRPC.address + " within 300ms (OTEL_EXPORTER_OTLP_TIMEOUT sets the time)",
		}, "DEADLINE_EXCEEDED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.host)
			defer cancel()
			err := open(t, env(c.env...)).Export(ctx, pluginsdk.NewBatch(some(t, 1)))
			fails(t, err, c.want...)
			if got := asHost(err).Code; got != c.counted {
				t.Errorf("counted as %s, want %s", got, c.counted)
			}
		})
	}
}

// TestCancelled: a call returns when the host has cancelled it, even if the back end does
// not answer.
func TestCancelled(t *testing.T) {
	release, came := make(chan struct{}), make(chan struct{}, 2)
	back := receive(t, func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-release })
	hanging := serveGRPC(t, nil)
	hanging.answer = func(ctx context.Context) error { came <- struct{}{}; <-ctx.Done(); return ctx.Err() }
	t.Cleanup(func() { close(release) })
	gaveUp := errors.New("the host gave up")
	for _, variables := range [][]string{
		{EnvEndpoint + "=" + back.URL}, {EnvProtocol + "=grpc", EnvEndpoint + "=http://" + hanging.address},
	} {
		e := open(t, env(variables...))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() { done <- e.Export(ctx, pluginsdk.NewBatch(some(t, 1))) }()
		<-came
		cancel(gaveUp)
		if err := <-done; !errors.Is(err, gaveUp) {
			t.Errorf("%q: got %v, want %v", variables, err, gaveUp)
		}
	}
}

// proxy is one that takes requests for any machine to one address.
func proxy(t *testing.T, to string, refuse int) *httptest.Server {
	t.Helper()
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse != 0 {
			w.WriteHeader(refuse)
			return
		}
		if r.Method != http.MethodConnect {
			out := r.Clone(r.Context())
			out.RequestURI, out.URL.Host = "", to
			resp, err := http.DefaultTransport.RoundTrip(out)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
			return
		}
		there, err := net.Dial("tcp", to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, ahead, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(there, ahead); _ = there.Close() }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}))
	t.Cleanup(func() { p.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
	return p
}

// TestProxy: machines that only the proxy knows are reached, and it is named where
// it is in the way.
func TestProxy(t *testing.T) {
	ca := newAuthority(t)
	back := receive(t, nil)
	secure := receiveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.server(&x509.Certificate{DNSNames: []string{"collector.invalid"}})}}, nil)
	toPlain, toSecure := proxy(t, back.Listener.Addr().String(), 0), proxy(t, secure.Listener.Addr().String(), 0)
	refusing := proxy(t, "", http.StatusProxyAuthRequired)
	trusting := EnvCertificate + "=" + ca.file
	if err := export(t, open(t, env(EnvEndpoint+"=http://collector.invalid", "HTTP_PROXY="+toPlain.URL))); err != nil || len(back.all()) != 1 {
		t.Errorf("plain: %v", err)
	}
	if err := export(t, open(t, env(EnvEndpoint+"=https://collector.invalid", "https_proxy="+toSecure.URL, trusting))); err != nil || len(secure.all()) != 1 {
		t.Errorf("TLS: %v", err)
	}
	fails(t, export(t, open(t, env(EnvEndpoint+"=https://collector.invalid", "HTTPS_PROXY=http://me:s3cret@"+refusing.Listener.Addr().String(), trusting))),
		"https://collector.invalid/v1/traces cannot be reached through the proxy "+refusing.URL+": check HTTP_PROXY, HTTPS_PROXY and NO_PROXY "+
			"(proxyconnect: "+refusing.Listener.Addr().String()+" answered 407 Proxy Authentication Required)")
	nobody := closedPort(t)
	fails(t, export(t, open(t, env(EnvEndpoint+"=http://collector.invalid", "HTTP_PROXY=http://"+nobody))),
		"http://collector.invalid/v1/traces cannot be reached through the proxy http://"+nobody+": ")
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{EnvEndpoint + "=http://a.invalid", "HTTPS_PROXY=http://p:1"}, ""},
		{[]string{EnvEndpoint + "=http://a.invalid", "HTTP_PROXY=http://me:s3cret@p:1"}, "http://p:1"},
		{[]string{EnvEndpoint + "=http://a.invalid", "HTTP_PROXY=http://p:1", "NO_PROXY=.invalid"}, ""},
		{[]string{EnvEndpoint + "=http://localhost", "HTTP_PROXY=http://p:1"}, ""},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=http://a.invalid", "HTTPS_PROXY=http://p:1"}, "http://p:1"},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=unix:/run/s", "HTTPS_PROXY=http://p:1"}, ""},
	} {
		got, err := readSettings(env(c.env...), Defaults{})
		if err != nil || got.via() != c.want {
			t.Errorf("%q: by %q, want %q; %v", c.env, got.via(), c.want, err)
		}
	}
}

// TestShutdownClosesConnections, so that a back end may end as well.
func TestShutdownClosesConnections(t *testing.T) {
	closed := make(chan struct{})
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(r.handler(t, nil))
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	e, err := New(t.Context(), env(EnvEndpoint+"="+r.URL))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := export(t, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-closed // once: a second connection would have panicked here
}
