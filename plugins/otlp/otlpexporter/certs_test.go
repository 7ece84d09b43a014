package otlpexporter

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
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own, in PEM
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{tb: tb}
	a.cert, a.key = a.make(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, "authority")
	a.file = filepath.Join(tb.TempDir(), "ca.pem")
	a.writeTo(a.file)
	return a
}

// writeTo puts the authority's certificate into a file, in one step.
func (a *authority) writeTo(file string) {
	writeFile(a.tb, file, "CERTIFICATE", a.cert.Raw)
}

// make signs a certificate, by the authority or, if it has none yet, by itself.
func (a *authority) make(t *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	t.SerialNumber, t.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	if t.NotAfter.IsZero() {
		t.NotBefore, t.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		a.tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatal(err)
	}
	return cert, key
}

// server is a certificate for 127.0.0.1, or as t has it.
func (a *authority) server(t *x509.Certificate) tls.Certificate {
	if t == nil {
		t = &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	cert, key := a.make(t, "server")
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// client writes a client's certificate and its key into files.
func (a *authority) client(certFile, keyFile, name string) {
	a.tb.Helper()
	cert, key := a.make(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, name)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	writeFile(a.tb, certFile, "CERTIFICATE", cert.Raw)
	writeFile(a.tb, keyFile, "EC PRIVATE KEY", der)
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func writeFile(tb testing.TB, file, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// receiveTLS is [receive] with TLS.
func receiveTLS(tb testing.TB, config *tls.Config, handler http.HandlerFunc) *receiver {
	tb.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(r.handler(tb, handler))
	r.TLS, r.EnableHTTP2 = config, true
	r.Config.ErrorLog = discard
	r.StartTLS()
	tb.Cleanup(r.Close)
	return r
}
