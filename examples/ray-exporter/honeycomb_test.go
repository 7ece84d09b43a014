package rayexporter

import (
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
)

// event is an event of Honeycomb's batch API, in part.
type event struct {
	Data struct {
		Name      string `json:"name"`
		Service   string `json:"service_name"`
		RequestID string `json:"serve.request_id"`
		SpanID    string `json:"trace.span_id"`
	} `json:"data"`
	team, path string
}

// honeycomb is Honeycomb's API behind a proxy: the guide's file has no setting for another
// address.
type honeycomb struct {
	proxy       string // for HTTPS_PROXY
	certificate string // file for REQUESTS_CA_BUNDLE

	mu     sync.Mutex
	events []event
}

func startHoneycomb(t *testing.T) *honeycomb {
	t.Helper()
	h := &honeycomb{certificate: filepath.Join(t.TempDir(), "ca.pem")}
	api := httptest.NewUnstartedServer(h)
	api.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, "api.honeycomb.io", h.certificate)}, MinVersion: tls.VersionTLS12}
	api.StartTLS()
	t.Cleanup(api.Close)
	proxy := httptest.NewServer(tunnel(t, "api.honeycomb.io:443", api.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	h.proxy = proxy.URL
	return h
}

// tunnel serves CONNECT for one address, and connects to another.
func tunnel(t *testing.T, from, to string) http.HandlerFunc {
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != from {
			http.Error(w, "want CONNECT "+from, http.StatusForbidden)
			return
		}
		back, err := net.Dial("tcp", to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		front, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			_ = back.Close()
			return
		}
		both := func() { _ = front.Close(); _ = back.Close() }
		running.Go(func() { defer both(); _, _ = io.Copy(back, front) }) // end with the client, or the server
		running.Go(func() { defer both(); _, _ = io.Copy(front, back) })
	}
}

// certificate makes a certificate for a host, and writes it to a file.
func certificate(t *testing.T, host, file string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// ServeHTTP takes a batch of events.
func (h *honeycomb) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var batch []event
	body, err := gzip.NewReader(r.Body)
	if err == nil {
		err = json.NewDecoder(body).Decode(&batch)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	answers := make([]map[string]int, len(batch))
	for i := range batch {
		batch[i].team, batch[i].path = r.Header.Get("X-Honeycomb-Team"), r.URL.Path
		answers[i] = map[string]int{"status": http.StatusAccepted}
	}
	h.events = append(h.events, batch...)
	_ = json.NewEncoder(w).Encode(answers)
}

// The guide's exporter.py, named in a service file as in the guide, sends to Honeycomb.
func TestHoneycomb(t *testing.T) {
	api, dir := startHoneycomb(t), app(t, "exporter.py")
	file := write(t, dir, "service.yaml", `
name: hello
tracing_config:
  exporter_import_path: exporter:default_tracing_exporter
  enabled: True
  sampling_ratio: 1.0
  python: `+python(t)+`
  plugins:
    exporter: {env: [REQUESTS_CA_BUNDLE]}
`)
	s := hellotest.Start(t, "SERVE_CONFIG="+file, "PYTHONPATH="+pythonPath(t), "HTTPS_PROXY="+api.proxy, "REQUESTS_CA_BUNDLE="+api.certificate,
		"HONEYCOMB_SERVICE_NAME=my-service-name", "HONEYCOMB_WRITE_KEY=xxxxxxxxxxxxxxxxxxxxxx", "HONEYCOMB_DATASET_NAME=my-dataset-name")
	s.Get("/", "r1")
	s.Await(s.Log, `msg="plugin is ready" plugin=exporter .*function=exporter:default_tracing_exporter .*variables="?\[HONEYCOMB_DATASET_NAME HONEYCOMB_SERVICE_NAME HONEYCOMB_WRITE_KEY REQUESTS_CA_BUNDLE\]`, 1)
	s.Stop() // the exporter has a queue of its own, which shutdown empties
	wantAccount(t, s, "spans=4 exporter.delivered=4")
	api.mu.Lock()
	defer api.mu.Unlock()
	want, ids := map[string]int{}, map[string]bool{}
	for _, name := range []string{"application_span", "proxy_http_request HelloWorld GET /", "replica_handle_request HelloWorld __call__", "route_to_replica HelloWorld __call__"} {
		want[name+" of r1 to /1/batch/my-dataset-name for xxxxxxxxxxxxxxxxxxxxxx by my-service-name"]++
	}
	got := map[string]int{}
	for _, e := range api.events {
		ids[e.Data.SpanID] = true
		got[e.Data.Name+" of "+e.Data.RequestID+" to "+e.path+" for "+e.team+" by "+e.Data.Service]++
	}
	if diff := cmp.Diff(want, got); diff != "" || len(ids) != hellotest.SpansOfRequest {
		t.Errorf("%d span ids; events (-want +got):\n%s", len(ids), diff)
	}
}
