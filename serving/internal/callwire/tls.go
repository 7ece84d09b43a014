package callwire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/servetrace/servetrace/internal/reread"
)

// TLS describes mutual TLS between the processes of an app. A process uses the same
// certificate as a client and as a server.
type TLS struct {
	// Cert, Key and CA are files in PEM form: the certificate of this process, its key, and
	// the authorities of the other processes.
	Cert, Key, CA string
	// IDs are the SPIFFE ids that other processes may have. An id that ends in "/*" allows all
	// ids with that prefix. If the list is empty, any certificate of the authorities is
	// accepted.
	IDs []string
}

// identity is the content of the files Cert, Key and CA.
type identity struct {
	cert        tls.Certificate
	authorities *x509.CertPool
}

// Credentials returns credentials for clients and servers. If the files change, later
// connections use their new content.
func (t TLS) Credentials(log *slog.Logger) (credentials.TransportCredentials, error) {
	files, err := reread.New("certificate for calls", log, t.read, t.Cert, t.Key, t.CA)
	if err != nil {
		return nil, err
	}
	creds := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &files.Get().cert, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &files.Get().cert, nil
		},
		// VerifyConnection verifies the certificates of clients and servers, in place of
		// package tls. It checks no host name, because processes have only addresses. It
		// gets the authorities for each connection, because their file may change.
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the certificate
		VerifyConnection: func(c tls.ConnectionState) error {
			return t.verify(c, files.Get().authorities)
		},
	})
	return logged{creds, &refusals{log: log}}, nil
}

// logged logs the handshakes of callers that a server has refused. On the side of a client, a
// failed handshake is the error of its call, so it is not logged here.
type logged struct {
	credentials.TransportCredentials
	refusals *refusals
}

// ServerHandshake implements [credentials.TransportCredentials].
func (l logged) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF comes from health checks, which connect and close at once
		l.refusals.note(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

// Clone implements [credentials.TransportCredentials].
func (l logged) Clone() credentials.TransportCredentials {
	return logged{l.TransportCredentials.Clone(), l.refusals}
}

// refusals logs refused processes, at most one in a second. The log is needed because TLS 1.3
// does not report the reason to the refused process.
type refusals struct {
	log  *slog.Logger
	mu   sync.Mutex
	last time.Time // time of the last line in the log
}

func (r *refusals) note(addr net.Addr, err error) {
	r.mu.Lock()
	due := time.Since(r.last) >= time.Second
	if due {
		r.last = time.Now()
	}
	r.mu.Unlock()
	if due {
		r.log.Warn("another process is refused", "address", addr.String(), "error", err)
	}
}

// read returns the content of the files Cert, Key and CA.
func (t TLS) read() (*identity, error) {
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s, key %s: %w", t.Cert, t.Key, err)
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", t.CA)
	}
	return &identity{cert, authorities}, nil
}

// verify returns nil if the certificate of the other side belongs to a process of the app,
// otherwise the reason for which it does not.
func (t TLS) verify(c tls.ConnectionState, authorities *x509.CertPool) error {
	if len(c.PeerCertificates) == 0 {
		return errors.New("the other process has no certificate")
	}
	leaf, between := c.PeerCertificates[0], x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("certificate of the other process: %w", err)
	}
	if len(t.IDs) > 0 && !slices.ContainsFunc(leaf.URIs, t.allows) {
		return fmt.Errorf("certificate of the other process: its ids %v are not among %q", leaf.URIs, t.IDs)
	}
	return nil
}

// allows reports whether IDs has the SPIFFE id, or a "/*" prefix of it.
func (t TLS) allows(id *url.URL) bool {
	text := id.String()
	return slices.ContainsFunc(t.IDs, func(want string) bool {
		below, is := strings.CutSuffix(want, "*")
		return text == want || is && strings.HasPrefix(text, below)
	})
}
