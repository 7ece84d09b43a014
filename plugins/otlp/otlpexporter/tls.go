package otlpexporter

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/servetrace/servetrace/pluginsdk"
)

// trust holds the paths of the files for TLS: the authorities to trust, and the client's
// certificate and key. An operator may replace the files while the plugin runs. By
// default, the system's authorities and no client certificate are used.
type trust struct{ authorities, certificate, key value }

// validate returns an error if only one of certificate and key is set. If read is true,
// it also returns an error if a file cannot be read or parsed.
func (t trust) validate(read bool) error {
	switch {
	case t.certificate.set() && !t.key.set():
		return &pluginsdk.ConfigError{Path: t.certificate.from, Err: fmt.Errorf("is set, but %s is not: set both or none", EnvClientKey)}
	case !t.certificate.set() && t.key.set():
		return &pluginsdk.ConfigError{Path: t.key.from, Err: fmt.Errorf("is set, but %s is not: set both or none", EnvClientCertificate)}
	case !read:
		return nil
	}
	_, _, errPool := t.pool()
	_, errPair := t.pair()
	return errors.Join(errPool, errPair)
}

// pool reads the authorities to trust. It returns nil if the system's authorities are to
// be used. content is the content of the file.
func (t trust) pool() (pool *x509.CertPool, content []byte, err error) {
	if !t.authorities.set() {
		return nil, nil, nil
	}
	content, err = readFile(t.authorities.text)
	if err != nil {
		return nil, nil, &pluginsdk.ConfigError{Path: t.authorities.from, Err: fmt.Errorf("read the authorities to trust: %w", err)}
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, nil, &pluginsdk.ConfigError{Path: t.authorities.from, Err: fmt.Errorf(
			"%q has no certificate: want PEM, with lines of -----BEGIN CERTIFICATE-----", t.authorities.text)}
	}
	return pool, content, nil
}

// readFile reads a file that the operator has named. It returns an error for a pipe or a
// device, because a pipe could block forever, and a device could fill the memory.
func readFile(name string) ([]byte, error) {
	const most = 16 << 20 // size in bytes; the file with all authorities of a system has some 200 KiB
	switch info, err := os.Stat(name); {
	case err != nil:
		return nil, err //nolint:wrapcheck // the error names the file, and the callers add the purpose of the file
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is not a regular file (%v): want a file in PEM", name, info.Mode().Type())
	case info.Size() > most:
		return nil, fmt.Errorf("%q has %d bytes: want a file in PEM of at most %d", name, info.Size(), most)
	}
	return os.ReadFile(name) //nolint:wrapcheck // the error names the file, and the callers add the purpose of the file
}

// pair reads the client's certificate and key. It returns nil if none is set.
func (t trust) pair() (*tls.Certificate, error) {
	if !t.certificate.set() {
		return nil, nil //nolint:nilnil // nil means TLS without a client's certificate
	}
	var pair tls.Certificate
	certificate, errCertificate := readFile(t.certificate.text)
	key, errKey := readFile(t.key.text)
	err := errors.Join(errCertificate, errKey)
	if err == nil {
		pair, err = tls.X509KeyPair(certificate, key)
	}
	if err != nil { // the error names the unreadable file, and does not contain parts of the key
		return nil, &pluginsdk.ConfigError{Path: t.certificate.from, Err: fmt.Errorf(
			"certificate %q with key %q of %s: %w", t.certificate.text, t.key.text, t.key.from, err)}
	}
	return &pair, nil
}

// config returns a TLS configuration, and the content of the file with the trusted
// authorities. At each handshake it reads the client's certificate and key again, so that
// a replaced certificate is used. While the two files do not match, it uses the last
// valid pair.
func (t trust) config() (*tls.Config, []byte, error) {
	pool, content, err := t.pool()
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	var mu sync.Mutex // guards last
	last, err := t.pair()
	if last == nil {
		return config, content, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := t.pair()
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			last = pair
		}
		return last, nil
	}
	return config, content, nil
}

func (t trust) describe(secure bool) string {
	if !secure {
		return "off"
	}
	text := "system's authorities"
	if t.authorities.set() {
		text = "authorities of " + t.authorities.text
	}
	if t.certificate.set() {
		text += ", certificate " + t.certificate.text
	}
	return text
}

// distrust reports whether err means that the TLS handshake failed because the server's
// certificate is not trusted.
func distrust(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}
