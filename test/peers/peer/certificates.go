package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are PEM files of a certificate authority that is made for one test, and
// of the certificates that it has signed. They are valid for a day.
type Certificates struct {
	// CA is the authority's certificate.
	CA string
	// Cert and Key are a server's, for 127.0.0.1 and localhost.
	Cert, Key string
	// ClientCert and ClientKey are a client's.
	ClientCert, ClientKey string
}

// NewCertificates makes an authority, a server's certificate and a client's, in
// a folder that goes with the test.
func NewCertificates(tb testing.TB) Certificates {
	tb.Helper()
	dir := tb.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey := newKey(tb)
	c := Certificates{
		CA: file("ca.pem"), Cert: file("server.pem"), Key: file("server-key.pem"),
		ClientCert: file("client.pem"), ClientKey: file("client-key.pem"),
	}
	sign(tb, ca, ca, caKey, caKey, c.CA)
	for i, leaf := range []struct {
		name, cert, key string
		usage           x509.ExtKeyUsage
	}{
		{"localhost", c.Cert, c.Key, x509.ExtKeyUsageServerAuth},
		{"client", c.ClientCert, c.ClientKey, x509.ExtKeyUsageClientAuth},
	} {
		key := newKey(tb)
		sign(tb, &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2), Subject: pkix.Name{CommonName: leaf.name},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{leaf.usage},
			DNSNames: []string{leaf.name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}, ca, key, caKey, leaf.cert)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			tb.Fatal(err)
		}
		writePEM(tb, leaf.key, "PRIVATE KEY", der)
	}
	return c
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// sign writes the certificate of a key that the parent's has signed.
func sign(tb testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey, file string) {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		tb.Fatal(err)
	}
	writePEM(tb, file, "CERTIFICATE", der)
}

func writePEM(tb testing.TB, file, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}
