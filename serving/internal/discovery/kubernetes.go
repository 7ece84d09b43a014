package discovery

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	defaultAPI            = "kubernetes.default.svc:443"
	defaultServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

	// listTimeout bounds the time of a request for a list. listLimit is the largest size of
	// its answer, in bytes. An EndpointSlice has at most 1,000 endpoints of some hundred
	// bytes each.
	listTimeout = 30 * time.Second
	listLimit   = 64 << 20
	// watchTime is the time after which the API is asked to end a watch. If the API does not
	// end it, the client does so watchRoom later.
	watchTime = 5 * time.Minute
	watchRoom = 30 * time.Second
	// The client pings a connection after a silence of pingAfter. If there is no answer
	// within pingTimeout, it closes the connection, because the other end is lost.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// The pause after a failure begins with firstPause, and doubles up to longestPause.
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
	// watchEvery is the shortest time between the starts of two watches. It bounds the
	// requests if the API ends each watch at once.
	watchEvery = time.Second
)

// errGone means that the resource version of a watch is too old for the API, so that a new
// list is needed. This happens in ordinary operation, and is not logged.
var errGone = errors.New("the resource version is too old")

// dnsLabel matches the names of namespaces, Services and ports.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// kubernetesSource is the Source that watches the EndpointSlices of a Service.
type kubernetesSource struct {
	api, account string // see Config.KubernetesAPI and Config.ServiceAccount
	namespace    string // "" means the namespace of the pod
	service      string
	port         string // name or number of the port
	log          *slog.Logger
	pause        time.Duration // pause after the first failure: firstPause, or less in tests
}

var _ Source = (*kubernetesSource)(nil)

// parseKubernetes returns the source of target, which is [namespace/]service:port.
func parseKubernetes(target string, cfg Config) (Source, error) {
	namespace, rest, ok := strings.Cut(target, "/")
	if !ok {
		namespace, rest = "", target
	}
	service, port, _ := strings.Cut(rest, ":")
	if ok && !dnsLabel.MatchString(namespace) {
		return nil, fmt.Errorf("%q is not the name of a namespace", namespace)
	}
	if !dnsLabel.MatchString(service) {
		return nil, fmt.Errorf("%q is not the name of a Service: write k8s:///[namespace/]service:port", service)
	}
	if n, err := strconv.ParseUint(port, 10, 16); !dnsLabel.MatchString(port) || err == nil && n == 0 {
		return nil, fmt.Errorf("%q is not the name of a port of Service %s, or the number of a port of its pods", port, service)
	}
	s := &kubernetesSource{
		api: cmp.Or(cfg.KubernetesAPI, defaultAPI), account: cmp.Or(cfg.ServiceAccount, defaultServiceAccount),
		namespace: namespace, service: service, port: port, log: cfg.Log.With("service", rest), pause: firstPause,
	}
	if _, err := s.client(); err != nil {
		return nil, fmt.Errorf("no service account: %w: k8s targets work in a pod with automountServiceAccountToken: true", err)
	}
	return s, nil
}

// Watch implements [Source]. It requests the list of slices and then watches for changes.
// After a failure it starts again with the list.
func (s *kubernetesSource) Watch(ctx context.Context, update func([]Endpoint), failed func(error)) {
	view := &sliceView{port: s.port, update: update, slices: map[string]endpointSlice{}}
	state := state{log: s.log, result: failed}
	pause := s.pause
	for {
		err := s.follow(ctx, view, func() {
			state.report(nil, len(view.last))
			pause = s.pause
		})
		if ctx.Err() != nil {
			return // the end of ctx is the reason of err
		}
		if !errors.Is(err, errGone) {
			state.report(err, len(view.last))
		}
		// Half of the pause is random, so that the pods of an app do not all send their
		// requests at the same time.
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// follow requests the list of slices, and watches for changes until a request fails or ctx
// ends. It calls works for each watch that the API accepts. It returns the error of the
// request that failed.
func (s *kubernetesSource) follow(ctx context.Context, view *sliceView, works func()) error {
	// Each list has a new client, because the file with the authorities may have changed.
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	version, err := s.list(ctx, client, view)
	if err != nil {
		return err
	}
	for {
		again := time.After(watchEvery)
		if version, err = s.watch(ctx, client, view, version, works); err != nil {
			return err
		}
		select {
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// list requests the list of slices, and replaces the slices of the view by it. It returns the
// resource version of the list.
func (s *kubernetesSource) list(ctx context.Context, client *http.Client, view *sliceView) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := s.get(ctx, client, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }() // an error has no effect after reading
	var list struct {
		Metadata metadata        `json:"metadata"`
		Items    []endpointSlice `json:"items"`
	}
	if err := json.NewDecoder(io.LimitReader(body, listLimit)).Decode(&list); err != nil {
		return "", fmt.Errorf("list of EndpointSlices: %w", err)
	}
	view.replace(list.Items)
	return list.Metadata.ResourceVersion, nil
}

// watch requests the changes after the resource version, and applies them to the view until
// the API ends the watch. It calls works when the API has accepted the watch. It returns the
// resource version of the last change.
func (s *kubernetesSource) watch(ctx context.Context, client *http.Client, view *sliceView, version string, works func()) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+watchRoom)
	defer cancel()
	body, err := s.get(ctx, client, url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(int(watchTime.Seconds()))},
	})
	if err != nil {
		return version, err
	}
	defer func() { _ = body.Close() }() // an error has no effect after reading
	works()
	decoder := json.NewDecoder(body)
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return version, fmt.Errorf("watch of EndpointSlices: %w", err)
		}
		if event.Type == "ERROR" {
			return version, statusError(event.Object, 0)
		}
		var slice endpointSlice
		if err := json.Unmarshal(event.Object, &slice); err != nil {
			return version, fmt.Errorf("watch of EndpointSlices: event %s: %w", event.Type, err)
		}
		version = slice.Metadata.ResourceVersion
		switch event.Type {
		case "ADDED", "MODIFIED":
			view.slices[slice.Metadata.Name] = slice
		case "DELETED":
			delete(view.slices, slice.Metadata.Name)
		}
		view.report()
	}
}

// get requests the slices of the Service with a query, and returns the body of an answer with
// status 200. It reads the token for each request, because the kubelet replaces the token
// before it expires.
func (s *kubernetesSource) get(ctx context.Context, client *http.Client, query url.Values) (io.ReadCloser, error) {
	token, err := s.file("token")
	if err != nil {
		return nil, err
	}
	namespace := s.namespace
	if namespace == "" {
		if namespace, err = s.file("namespace"); err != nil {
			return nil, err
		}
	}
	if query == nil {
		query = url.Values{}
	}
	query.Set("labelSelector", "kubernetes.io/service-name="+s.service)
	u := url.URL{
		Scheme: "https", Host: s.api, RawQuery: query.Encode(),
		Path: "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices",
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }() // an error has no effect after reading
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return nil, fmt.Errorf("status %d of the Kubernetes API: %w", resp.StatusCode, err)
	}
	if resp.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("%w: the service account of the pod needs a Role with verbs list and watch on endpointslices", statusError(text, resp.StatusCode))
	}
	return nil, statusError(text, resp.StatusCode)
}

// statusError returns the error for a Status of the API, which object has as JSON. If the
// Status has no code, it uses the argument code.
func statusError(object []byte, code int) error {
	status := struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{Code: code, Message: string(object)}
	// If object is not JSON, for example because a proxy made it, it becomes the message.
	_ = json.Unmarshal(object, &status)
	if status.Code == http.StatusGone {
		return errGone
	}
	return fmt.Errorf("status %d of the Kubernetes API: %s", status.Code, status.Message)
}

// client returns an HTTP client that trusts the authorities of the service account.
func (s *kubernetesSource) client() (*http.Client, error) {
	pem, err := s.file("ca.crt")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(pem)) {
		return nil, fmt.Errorf("no certificate in %s", filepath.Join(s.account, "ca.crt"))
	}
	return &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: pingTimeout}).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: pingTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}}, nil
}

// file returns the text of a file of the service account, without spaces around it.
func (s *kubernetesSource) file(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.account, name))
	return strings.TrimSpace(string(text)), err
}
