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

// trust is what TLS is made of: names of files, which somebody may replace while
// the plugin runs. None set: the system's authorities, and no certificate.
type trust struct{ authorities, certificate, key value }

// trust finds what is wrong with the files. Without TLS they are not read.
func (r *reader) trust(t trust, e endpoint) {
	switch {
	case t.certificate.set() && !t.key.set():
		r.fault(t.certificate.from, "is set, and %s is not: set both, or none", EnvClientKey)
	case !t.certificate.set() && t.key.set():
		r.fault(t.key.from, "is set, and %s is not: set both, or none", EnvClientCertificate)
	}
	if !e.secure || len(r.faults) > 0 {
		return
	}
	if _, _, err := t.pool(); err != nil {
		r.faults = append(r.faults, err)
	}
	if t.certificate.set() {
		if _, err := t.pair(); err != nil {
			r.faults = append(r.faults, err)
		}
	}
}

// pool reads the authorities. It is nil for the system's. content is the file's.
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

// readFile reads a file that the operator has named. What may not end is not
// opened: the start would wait for a pipe without a writer, and a device fills
// the memory.
func readFile(name string) ([]byte, error) {
	const most = 16 << 20 // bytes; all authorities of a system are some 200 KiB
	switch info, err := os.Stat(name); {
	case err != nil:
		return nil, err //nolint:wrapcheck // it names the file, and those who ask say what for
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is no file, but %v: want a file in PEM", name, info.Mode().Type())
	case info.Size() > most:
		return nil, fmt.Errorf("%q has %d bytes: want a file in PEM, of %d at most", name, info.Size(), most)
	}
	return os.ReadFile(name) //nolint:wrapcheck // as above
}

// pair reads certificate and key.
func (t trust) pair() (*tls.Certificate, error) {
	var pair tls.Certificate
	certificate, errCertificate := readFile(t.certificate.text)
	key, errKey := readFile(t.key.text)
	err := errors.Join(errCertificate, errKey)
	if err == nil {
		pair, err = tls.X509KeyPair(certificate, key)
	}
	if err != nil { // it names the file that can not be read, and shows nothing of the key
		return nil, &pluginsdk.ConfigError{Path: t.certificate.from, Err: fmt.Errorf(
			"certificate %q with key %q of %s: %w", t.certificate.text, t.key.text, t.key.from, err)}
	}
	return &pair, nil
}

// config makes a configuration, and gives the authorities' file as it was read.
// The client's certificate is read anew at each handshake, so that one that was
// renewed is used at the next; while its files do not fit together the last that
// did is.
func (t trust) config() (*tls.Config, []byte, error) {
	pool, content, err := t.pool()
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if !t.certificate.set() {
		return config, content, nil
	}
	var mu sync.Mutex // guards last
	last, err := t.pair()
	if err != nil {
		return nil, nil, err
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

// describe is for the log.
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

// distrust tells whether the handshake failed because of who the server is.
func distrust(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}
