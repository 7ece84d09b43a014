package serving_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// life is the time until the next certificates expire.
	life time.Duration
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{life: time.Hour}
	a.cert, a.key = signed(t, nil, "")
	return a
}

// signed returns a certificate with the SPIFFE id, signed by a; for nil, an authority.
func signed(t testing.TB, by *authority, id string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "test " + serial.String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if by != nil {
		template.NotAfter = time.Now().Add(by.life)
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage, template.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	} else {
		parent, signer = by.cert, by.key
		uri, err := url.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{uri}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// files writes a certificate with the id, its key and the authority into a folder, and
// returns the settings with them.
func (a *authority) files(t testing.TB, dir, id string) serving.CallConfig {
	t.Helper()
	cert, key := signed(t, a, id)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		next := path + ".next"
		if err := os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return serving.CallConfig{
		TLSCert: write("tls.crt", "CERTIFICATE", cert.Raw),
		TLSKey:  write("tls.key", "EC PRIVATE KEY", der),
		TLSCA:   write("ca.crt", "CERTIFICATE", a.cert.Raw),
	}
}

func echoer() (*serving.Deployment, *serving.Handle[string, string]) {
	d := functions("B")
	return d, serving.AddFunction(d, "", func(_ context.Context, text string) (string, error) { return text, nil })
}

// tlsCaller serves a caller of the address with the settings.
func tlsCaller(t testing.TB, cfg serving.CallConfig, b *rig) (*rig, *serving.Handle[string, string]) {
	t.Helper()
	here, echo := echoer()
	cfg.Remote = map[string]string{"B": "static:///" + b.server.CallAddr().String()}
	return caller(t, serving.Config{Calls: cfg}, nil2, here), echo
}

// TestMutualTLS: processes of the app call each other, and others are refused, with the
// reason in the status of the caller.
func TestMutualTLS(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	cfg := ours.files(t, t.TempDir(), "spiffe://test/ns/shop/sa/model")
	cfg.TLSIDs = []string{"spiffe://test/ns/shop/*"}
	there, _ := echoer()
	b := calleeOf(t, cfg, there)
	_, echo := tlsCaller(t, ours.files(t, t.TempDir(), "spiffe://test/ns/shop/sa/ingress"), b)
	if out, err := echo.Call(t.Context(), "hello"); out != "hello" || err != nil {
		t.Errorf("call of a process of the app: %q, %v", out, err)
	}
	strict := ours.files(t, t.TempDir(), "spiffe://test/ns/shop/sa/ingress")
	strict.TLSIDs = []string{"spiffe://test/ns/shop/sa/ranker"}
	mixed := other.files(t, t.TempDir(), "spiffe://test/ns/shop/sa/ingress")
	mixed.TLSCA = cfg.TLSCA // it trusts the callee, which does not trust it
	for _, tt := range []struct {
		name string
		cfg  serving.CallConfig
		want string
	}{
		{"without TLS", serving.CallConfig{}, "if the process uses TLS, set SERVE_CALL_TLS_CERT, "},
		{"callee of another authority", other.files(t, t.TempDir(), "spiffe://test/ns/shop/sa/x"), "signed by unknown authority"},
		{"certificate of another authority", mixed, ""},
		{"id outside of the app", ours.files(t, t.TempDir(), "spiffe://test/ns/shopping/sa/x"), ""},
		{"callee with another id", strict, "[spiffe://test/ns/shop/sa/model] are not among"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, echo := tlsCaller(t, tt.cfg, b)
			status := func() serving.DeploymentStatus { return a.server.Status()[1] }
			servingtest.Await(t, "the refusal with "+tt.want, func() bool { return status().Error != "" && strings.Contains(status().Error, tt.want) })
			if got := status(); got.NumReplicas != 0 {
				t.Errorf("status %+v, want no replicas", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := echo.Call(ctx, "hello"); err == nil {
				t.Error("the call succeeds")
			}
		})
	}
}

// TestRefusedProcessesAreLogged: the callee has the address of the caller and the reason.
func TestRefusedProcessesAreLogged(t *testing.T) {
	ours := newAuthority(t)
	cfg := ours.files(t, t.TempDir(), "spiffe://test/a")
	mixed := newAuthority(t).files(t, t.TempDir(), "spiffe://test/b")
	mixed.TLSCA = cfg.TLSCA
	for want, caller := range map[string]serving.CallConfig{
		"signed by unknown authority":                     mixed,
		"first record does not look like a TLS handshake": {},
	} {
		there, _ := echoer()
		b := calleeOf(t, cfg, there)
		tlsCaller(t, caller, b)
		line := b.access.take(t, "another process is refused", 1)[0]
		if text := fmt.Sprint(line["error"]); !strings.Contains(text, want) || !strings.HasPrefix(fmt.Sprint(line["address"]), "127.0.0.1:") {
			t.Errorf("log %v, want an error with %q", line, want)
		}
	}
}

// TestChangedCertificates: new files hold for new connections.
func TestChangedCertificates(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	there, _ := echoer()
	b := calleeOf(t, old.files(t, dir, "spiffe://test/a"), there)
	next.files(t, dir, "spiffe://test/a")
	servingtest.Await(t, "a caller with the new certificates", func() bool {
		a, echo := tlsCaller(t, next.files(t, t.TempDir(), "spiffe://test/b"), b)
		servingtest.Await(t, "the state of the callee", func() bool { s := a.server.Status()[1]; return s.Error != "" || s.NumReplicas > 0 })
		if a.server.Status()[1].NumReplicas == 0 {
			return false
		}
		out, err := echo.Call(t.Context(), "hello")
		return out == "hello" && err == nil
	})
	a, _ := tlsCaller(t, old.files(t, t.TempDir(), "spiffe://test/b"), b)
	servingtest.Await(t, "the refusal", func() bool { return a.server.Status()[1].Error != "" })
}

// TestExpiredCertificates: a connection outlives the certificates with which it was opened,
// new ones are refused, and the next certificates end that without a restart.
func TestExpiredCertificates(t *testing.T) {
	ours := newAuthority(t)
	dir := t.TempDir()
	there, _ := echoer()
	b := calleeOf(t, ours.files(t, dir, "spiffe://test/a"), there)
	_, old := tlsCaller(t, ours.files(t, t.TempDir(), "spiffe://test/b"), b)
	works := func(echo *serving.Handle[string, string]) bool {
		ctx, cancel := context.WithTimeout(t.Context(), servingtest.Patience)
		defer cancel()
		out, err := echo.Call(ctx, "hello")
		return out == "hello" && err == nil
	}
	if !works(old) {
		t.Fatal("the first call fails")
	}
	// next returns the result of a process that calls with a new connection.
	next := func() (serving.DeploymentStatus, bool) {
		a, echo := tlsCaller(t, ours.files(t, t.TempDir(), "spiffe://test/b"), b)
		servingtest.Await(t, "the state of the callee", func() bool { s := a.server.Status()[1]; return s.Error != "" || s.NumReplicas > 0 })
		s := a.server.Status()[1]
		return s, s.NumReplicas > 0 && works(echo)
	}
	ours.life = -time.Minute
	ours.files(t, dir, "spiffe://test/a")
	ours.life = time.Hour
	servingtest.Await(t, "the refusal of the expired certificate", func() bool {
		s, _ := next()
		return strings.Contains(s.Error, "certificate has expired")
	})
	if !works(old) {
		t.Error("a call on the old connection fails")
	}
	ours.files(t, dir, "spiffe://test/a")
	servingtest.Await(t, "a call with the next certificate", func() bool {
		_, ok := next()
		return ok
	})
}

// TestFaultsOfTLS: the settings are complete, or say what is missing.
func TestFaultsOfTLS(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"SERVE_CALL_TLS_CERT": "c"}, `SERVE_CALL_TLS_CERT="c", SERVE_CALL_TLS_KEY="" and SERVE_CALL_TLS_CA="": want all three or none`},
		{map[string]string{"SERVE_CALL_TLS_IDS": "spiffe://a/b"}, `SERVE_CALL_TLS_IDS="spiffe://a/b": ids need TLS; set SERVE_CALL_TLS_CERT, SERVE_CALL_TLS_KEY and SERVE_CALL_TLS_CA`},
		{map[string]string{"SERVE_CALL_ADDR": "9100"}, `SERVE_CALL_ADDR "9100": want host:port: address 9100: missing port in address`},
		{map[string]string{"SERVE_REMOTE": "static:///h:1"}, `SERVE_REMOTE="static:///h:1": item "static:///h:1": want DEPLOYMENT=TARGET, such as Model=dns:///model.default.svc:9100`},
		{map[string]string{"SERVE_REMOTE": "M=static:///h:1,M=static:///h:2"}, `SERVE_REMOTE="M=static:///h:1,M=static:///h:2": deployment "M" stands there twice`},
	} {
		cfg, err := serving.ConfigFromEnv(func(name string) string { return tt.env[name] })
		if err == nil {
			err = cfg.Validate()
		}
		if fmt.Sprint(err) != tt.want {
			t.Errorf("%v: %v, want %s", tt.env, err, tt.want)
		}
	}
	cfg, err := serving.ConfigFromEnv(func(name string) string {
		return map[string]string{"SERVE_REMOTE": "M=static:///h:1,h:2 , R=dns:///r:3", "SERVE_DEPLOYMENTS": "A, B"}[name]
	})
	if want := "map[M:static:///h:1,h:2 R:dns:///r:3] [A B]"; err != nil || fmt.Sprint(cfg.Calls.Remote, cfg.Calls.Deployments) != want {
		t.Errorf("%v, %v, %v", cfg.Calls.Remote, cfg.Calls.Deployments, err)
	}
}
