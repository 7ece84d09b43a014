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

// TLS describes mutual TLS between the processes of an app. Each process is client and
// server with the same certificate.
type TLS struct {
	// Cert, Key and CA are files in PEM form: the certificate of this process, its key, and
	// the authorities of the other processes.
	Cert, Key, CA string
	// IDs are the SPIFFE ids of the other processes. An id that ends in "/*" stands for all
	// ids below it. Empty: any certificate of the authorities is accepted.
	IDs []string
}

// identity is the content of the files.
type identity struct {
	cert        tls.Certificate
	authorities *x509.CertPool
}

// Credentials returns the credentials of both sides of a connection. When the files have
// changed, later connections use their new content.
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
		// VerifyConnection verifies both sides. Processes have addresses, and no names
		// that a certificate could contain. It reads the authorities for each connection,
		// because they may change.
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(c tls.ConnectionState) error {
			return t.verify(c, files.Get().authorities)
		},
	})
	return logged{creds, &refusals{log: log}}, nil
}

// logged writes refused callers to the log. A refused callee is an error of the client.
type logged struct {
	credentials.TransportCredentials
	refusals *refusals
}

// ServerHandshake implements [credentials.TransportCredentials].
func (l logged) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, io.EOF) { // a probe of the port closes it at once
		l.refusals.note(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

// Clone implements [credentials.TransportCredentials].
func (l logged) Clone() credentials.TransportCredentials {
	return logged{l.TransportCredentials.Clone(), l.refusals}
}

// refusals writes refused processes to the log, at most one in a second. The other side
// does not see the reason in TLS 1.3.
type refusals struct {
	log  *slog.Logger
	mu   sync.Mutex
	last time.Time
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

// read reads the files.
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

// verify returns the reason for which the other side is not a process of the app, or nil.
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

// allows reports whether an id is among the IDs.
func (t TLS) allows(id *url.URL) bool {
	text := id.String()
	return slices.ContainsFunc(t.IDs, func(want string) bool {
		below, is := strings.CutSuffix(want, "*")
		return text == want || is && strings.HasPrefix(text, below)
	})
}
