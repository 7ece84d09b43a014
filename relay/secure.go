package relay

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/reread"
)

// tlsConfig returns the TLS configuration of a listener that offers these application
// protocols (ALPN). It returns nil if the settings have no certificate.
func (c Config) tlsConfig(log *slog.Logger, protocols []string) (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil //nolint:nilnil // plain text is valid
	}
	read := func() (*tls.Config, error) { return c.readTLS(protocols) }
	files, err := reread.New("certificate", log, read, c.TLSCert, c.TLSKey, c.TLSClientCA)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Get(), nil },
	}, nil
}

// readTLS reads the certificates and the key, and returns the TLS configuration with them.
func (c Config) readTLS(protocols []string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", EnvTLSCert, EnvTLSKey, err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{cert}}
	if c.TLSClientCA == "" {
		return cfg, nil
	}
	text, err := os.ReadFile(c.TLSClientCA)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvTLSClientCA, err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !cfg.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s has no certificate in PEM form", EnvTLSClientCA, c.TLSClientCA)
	}
	return cfg, nil
}

// token is the SHA-256 digest of a bearer token.
type token [sha256.Size]byte

// readToken returns a function that returns the digest of the current token. The function is
// nil if the settings have no token.
func (c Config) readToken(log *slog.Logger) (func() token, error) {
	if c.Token != "" {
		digest := token(sha256.Sum256([]byte(c.Token)))
		return func() token { return digest }, nil
	}
	if c.TokenFile == "" {
		return nil, nil //nolint:nilnil // no token is valid
	}
	file, err := reread.New("token", log, func() (token, error) {
		text, err := os.ReadFile(c.TokenFile)
		if text = bytes.TrimSpace(text); err == nil && len(text) == 0 {
			err = errors.New("the file is empty")
		}
		if err != nil {
			return token{}, fmt.Errorf("%s: %w", EnvTokenFile, err)
		}
		return sha256.Sum256(text), nil
	}, c.TokenFile)
	if err != nil {
		return nil, err
	}
	return file.Get, nil
}

// authorize returns an error if the header Authorization of a request lacks the token. Senders
// at a Unix socket need no token, because their user was checked.
func (s *service) authorize(c *conn, header string) error {
	if s.token == nil || c.isLocal() {
		return nil
	}
	scheme, seen, _ := strings.Cut(header, " ")
	want, got := s.token(), sha256.Sum256([]byte(strings.TrimSpace(seen)))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return status.Error(codes.Unauthenticated, "the header Authorization must be the relay's bearer token")
	}
	return nil
}
