package discovery

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// apiServer speaks the protocol of list and watch for the EndpointSlices of a namespace.
type apiServer struct {
	*httptest.Server

	account string // the folder of the service account

	mu sync.Mutex
	// version is the present resource version. Versions before oldest are forgotten.
	version, oldest int
	slices          map[string]string // JSON without metadata, by name
	events          []watchEvent
	changed         chan struct{} // closed at each change
	cut             chan struct{} // closed to end all watches
	token           string
	// refuse returns the status for a request, 0 for the usual answer.
	refuse         func(watch bool) int
	lists, watches int
}

type watchEvent struct {
	version      int
	kind, object string
}

func startAPI(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{
		account: t.TempDir(), version: 1, slices: map[string]string{}, changed: make(chan struct{}), cut: make(chan struct{}),
		refuse: func(bool) int { return 0 },
	}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	s.write(t, "ca.crt", string(ca))
	s.write(t, "namespace", "default\n")
	s.setToken(t, "first")
	return s
}

func (s *apiServer) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.account, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *apiServer) setToken(t *testing.T, token string) {
	t.Helper()
	s.mu.Lock()
	s.token = token
	s.mu.Unlock()
	s.write(t, "token", token+"\n")
}

// ServeHTTP answers as the Kubernetes API does.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	watch := query.Get("watch") == "true"
	s.mu.Lock()
	code := s.refuse(watch)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		code = http.StatusUnauthorized
	case r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", query.Get("labelSelector") != "kubernetes.io/service-name=model":
		code = http.StatusNotFound
	}
	if watch {
		s.watches++
	} else {
		s.lists++
	}
	s.mu.Unlock()
	switch {
	case code != 0:
		w.WriteHeader(code)
		fmt.Fprint(w, statusJSON(code))
	case watch:
		since, err := strconv.Atoi(query.Get("resourceVersion"))
		if err != nil || query.Get("allowWatchBookmarks") != "true" || query.Get("timeoutSeconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.watch(w, r, since)
	default:
		s.list(w)
	}
}

func statusJSON(code int) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the text of %d","code":%d}`, code, code)
}

func (s *apiServer) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []string
	for _, name := range slices.Sorted(maps.Keys(s.slices)) {
		items = append(items, s.object(name, s.version))
	}
	fmt.Fprintf(w, `{"kind":"EndpointSliceList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, s.version, strings.Join(items, ","))
}

func (s *apiServer) object(name string, version int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"%d"},%s`, name, version, strings.TrimPrefix(s.slices[name], "{"))
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, since int) {
	w.WriteHeader(http.StatusOK)
	flusher := w.(http.Flusher)
	for {
		s.mu.Lock()
		var out []string
		if since < s.oldest {
			out = append(out, fmt.Sprintf(`{"type":"ERROR","object":%s}`, statusJSON(http.StatusGone)))
		} else {
			for _, e := range s.events {
				if e.version > since {
					since = e.version
					out = append(out, fmt.Sprintf(`{"type":%q,"object":%s}`, e.kind, e.object))
				}
			}
		}
		gone, changed, cut := since < s.oldest, s.changed, s.cut
		s.mu.Unlock()
		fmt.Fprint(w, strings.Join(out, "\n"))
		flusher.Flush()
		if gone {
			return
		}
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// set makes or replaces a slice, and removes it if object is "".
func (s *apiServer) set(name, object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.slices[name]
	s.version++
	kind := map[bool]string{true: "MODIFIED", false: "ADDED"}[there]
	if object == "" {
		s.events = append(s.events, watchEvent{s.version, "DELETED", s.object(name, s.version)})
		delete(s.slices, name)
	} else {
		s.slices[name] = object
		s.events = append(s.events, watchEvent{s.version, kind, s.object(name, s.version)})
	}
	s.broadcast()
}

// bookmark sends the present version to all watches.
func (s *apiServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object := fmt.Sprintf(`{"kind":"EndpointSlice","metadata":{"resourceVersion":"%d"}}`, s.version)
	s.events = append(s.events, watchEvent{s.version, "BOOKMARK", object})
	s.broadcast()
}

// forget drops the events until now, so that watches of older versions get 410.
func (s *apiServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.events = s.version, nil
	s.broadcast()
}

func (s *apiServer) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// end ends all watches as the API does after their time.
func (s *apiServer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

func (s *apiServer) setRefuse(f func(watch bool) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// counts returns the numbers of lists and watches.
func (s *apiServer) counts() (lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches
}

// awaitLists waits until the API was asked for this many lists.
func (s *apiServer) awaitLists(t *testing.T, want int) {
	t.Helper()
	s.await(t, func(lists, _ int) bool { return lists >= want })
}

// awaitWatches waits until the API was asked for this many watches.
func (s *apiServer) awaitWatches(t *testing.T, want int) {
	t.Helper()
	s.await(t, func(_, watches int) bool { return watches >= want })
}

func (s *apiServer) await(t *testing.T, enough func(lists, watches int) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !enough(s.counts()) {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the test ends")
		}
	}
}

// source returns a source of this API with short pauses.
func (s *apiServer) source(t *testing.T, target string, log *logBuffer) Source {
	t.Helper()
	source, err := Parse(target, Config{Log: log.logger(), KubernetesAPI: s.Listener.Addr().String(), ServiceAccount: s.account})
	if err != nil {
		t.Fatal(err)
	}
	source.(*kubernetesSource).pause = time.Millisecond
	return source
}

// endpoint is the JSON of an endpoint that is ready.
func endpoint(addr string) string {
	return fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":true,"serving":true,"terminating":false},"targetRef":{"kind":"Pod","name":"pod-%s"},"zone":"a"}`, addr, addr)
}

// slice is the JSON of an IPv4 slice with port 9100, which is named call.
func slice(endpoints ...string) string {
	return fmt.Sprintf(`{"addressType":"IPv4","ports":[{"name":"call","protocol":"TCP","port":9100}],"endpoints":[%s]}`, strings.Join(endpoints, ","))
}

func TestKubernetesFollowsTheSlices(t *testing.T) {
	api := startAPI(t)
	api.set("model-1", slice(endpoint("10.0.0.2"), endpoint("10.0.0.1")))
	lists := watch(t, api.source(t, "k8s:///model:call", new(logBuffer)))
	await(t, lists, "10.0.0.1:9100", "10.0.0.2:9100")
	api.set("model-2", slice(endpoint("10.0.0.3"))) // added
	await(t, lists, "10.0.0.1:9100", "10.0.0.2:9100", "10.0.0.3:9100")
	api.set("model-1", slice(endpoint("10.0.0.1"))) // modified
	await(t, lists, "10.0.0.1:9100", "10.0.0.3:9100")
	api.bookmark()
	api.set("model-2", "") // deleted
	await(t, lists, "10.0.0.1:9100")
	api.set("model-1", slice())
	await(t, lists)
	if n, _ := api.counts(); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
}

func TestKubernetesReportsAnEmptyService(t *testing.T) {
	api := startAPI(t)
	lists := watch(t, api.source(t, "k8s:///default/model:call", new(logBuffer)))
	await(t, lists)
	api.set("model-1", slice(endpoint("10.0.0.1")))
	await(t, lists, "10.0.0.1:9100")
}

// TestKubernetesWatchesOn ends watches, and holds that a watch goes on from the version of the
// last bookmark, without a list.
func TestKubernetesWatchesOn(t *testing.T) {
	api := startAPI(t)
	lists := watch(t, api.source(t, "k8s:///model:call", new(logBuffer)))
	await(t, lists)
	api.awaitWatches(t, 1)
	api.set("model-1", slice(endpoint("10.0.0.1")))
	await(t, lists, "10.0.0.1:9100")
	api.bookmark()
	api.set("model-1", slice(endpoint("10.0.0.2")))
	await(t, lists, "10.0.0.2:9100")
	api.end()
	api.awaitWatches(t, 2)
	api.set("model-1", slice(endpoint("10.0.0.3")))
	await(t, lists, "10.0.0.3:9100")
	if n, _ := api.counts(); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
}

// TestKubernetesListsAgain has a version that is too old, as an event and as the status of
// the answer. Neither is a failure for the log.
func TestKubernetesListsAgain(t *testing.T) {
	api, log := startAPI(t), new(logBuffer)
	lists := watch(t, api.source(t, "k8s:///model:call", log))
	await(t, lists)
	api.awaitWatches(t, 1)
	api.forget()
	api.set("model-1", slice(endpoint("10.0.0.1")))
	await(t, lists, "10.0.0.1:9100")
	if n, _ := api.counts(); n != 2 {
		t.Errorf("%d lists after an event 410, want 2", n)
	}

	api.awaitWatches(t, 2)
	gone := true
	api.setRefuse(func(watch bool) int {
		if watch && gone {
			gone = false
			return http.StatusGone
		}
		return 0
	})
	api.end()
	api.awaitWatches(t, 4)
	api.set("model-1", slice(endpoint("10.0.0.2")))
	await(t, lists, "10.0.0.2:9100")
	if n, _ := api.counts(); n != 3 {
		t.Errorf("%d lists after status 410, want 3", n)
	}
	if n := log.count("discovery fails"); n != 0 {
		t.Errorf("%d failures in the log, want none", n)
	}
}

// TestKubernetesKeepsTheListThroughFailures has an API that refuses, without a right to watch,
// and with a token that it does not know.
func TestKubernetesKeepsTheListThroughFailures(t *testing.T) {
	api, log := startAPI(t), new(logBuffer)
	refuseAll := func(code int) func(bool) int { return func(bool) int { return code } }
	api.setRefuse(refuseAll(http.StatusInternalServerError))
	api.set("model-1", slice(endpoint("10.0.0.1")))
	lists := watch(t, api.source(t, "k8s:///model:call", log))
	api.awaitLists(t, 3)
	if len(lists) != 0 {
		t.Fatal("a list before the first answer")
	}
	api.setRefuse(func(watch bool) int { return map[bool]int{true: http.StatusForbidden}[watch] })
	await(t, lists, "10.0.0.1:9100")
	_, watches := api.counts()
	api.awaitWatches(t, watches+3)
	if failures, ends := log.count("discovery fails"), log.count("works again"); failures != 1 || ends != 0 {
		t.Errorf("%d lines of failure and %d of success without a watch, want 1 and 0", failures, ends)
	}
	api.setRefuse(refuseAll(0))
	api.set("model-1", slice(endpoint("10.0.0.2")))
	await(t, lists, "10.0.0.2:9100")
	_, watches = api.counts()

	api.setToken(t, "second") // the next request reads it
	api.CloseClientConnections()
	api.awaitWatches(t, watches+1)
	api.set("model-1", slice(endpoint("10.0.0.3")))
	await(t, lists, "10.0.0.3:9100")
	if n := log.count("Unauthorized") + log.count("the text of 401"); n != 0 {
		t.Errorf("%d answers of 401 after a change of the token", n)
	}
}

func TestKubernetesErrors(t *testing.T) {
	for code, want := range map[int]string{
		http.StatusForbidden:           "status 403 of the Kubernetes API: the text of 403: the service account of the pod needs a Role with verbs list and watch on endpointslices",
		http.StatusUnauthorized:        "status 401 of the Kubernetes API: the text of 401",
		http.StatusTooManyRequests:     "status 429 of the Kubernetes API: the text of 429",
		http.StatusInternalServerError: "status 500 of the Kubernetes API: the text of 500",
	} {
		api := startAPI(t)
		api.setRefuse(func(bool) int { return code })
		source := api.source(t, "k8s:///model:call", new(logBuffer)).(*kubernetesSource)
		err := source.follow(t.Context(), &sliceView{}, func() {})
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestSliceEndpoints(t *testing.T) {
	object := `{"addressType":"IPv4","ports":[{"name":"call","port":9100},{"name":"dns","protocol":"UDP","port":53},{"port":8000}],"endpoints":[
		{"addresses":["10.0.0.1"]},
		{"addresses":["10.0.0.2"],"conditions":{"ready":false,"serving":true,"terminating":true},"zone":"b","targetRef":{"kind":"Pod","name":"p"}},
		{"addresses":["10.0.0.3"],"conditions":{"ready":false}},
		{"addresses":[]}]}`
	var slice endpointSlice
	if err := json.Unmarshal([]byte(object), &slice); err != nil {
		t.Fatal(err)
	}
	want := []Endpoint{
		{Addr: "10.0.0.1:9100", Ready: true, Serving: true},
		{Addr: "10.0.0.2:9100", Serving: true, Name: "p"},
		{Addr: "10.0.0.3:9100"},
	}
	if diff := cmp.Diff(want, slice.endpoints("call")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := slice.endpoints("9200"); len(got) != 3 || got[0].Addr != "10.0.0.1:9200" {
		t.Errorf("endpoints of port 9200: %v", got)
	}
	for _, port := range []string{"dns", "http"} {
		if got := slice.endpoints(port); got != nil {
			t.Errorf("endpoints of port %s: %v, want none", port, got)
		}
	}
	slice.AddressType = "FQDN"
	if got := slice.endpoints("call"); got != nil {
		t.Errorf("endpoints of a slice of names: %v, want none", got)
	}
}

// TestViewMergesSlices has an endpoint in two slices, and a pod with two families of
// addresses.
func TestViewMergesSlices(t *testing.T) {
	parse := func(object string) (s endpointSlice) {
		if err := json.Unmarshal([]byte(object), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	stale := `{"addresses":["10.0.0.1"],"conditions":{"ready":false},"targetRef":{"kind":"Pod","name":"pod-10.0.0.1"},"zone":"a"}`
	six := strings.NewReplacer("IPv4", "IPv6", "pod-fd00::1", "pod-10.0.0.1").Replace(slice(endpoint("fd00::1"), endpoint("fd00::2")))
	view := &sliceView{port: "call", slices: map[string]endpointSlice{
		"1": parse(slice(stale)), "2": parse(slice(endpoint("10.0.0.1"))), "3": parse(six),
	}}
	want := []Endpoint{
		{Addr: "10.0.0.1:9100", Serving: true, Ready: true, Name: "pod-10.0.0.1"},
		{Addr: "[fd00::2]:9100", Serving: true, Ready: true, Name: "pod-fd00::2"},
	}
	if diff := cmp.Diff(want, view.endpoints()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseKubernetesRefuses(t *testing.T) {
	api := startAPI(t)
	for target, want := range map[string]string{
		"k8s:///":               `"" is not the name of a Service: write k8s:///[namespace/]service:port`,
		"k8s:///Model:call":     `"Model" is not the name of a Service`,
		"k8s:///a/b/c:call":     `"b/c" is not the name of a Service`,
		"k8s:////model:call":    `"" is not the name of a namespace`,
		"k8s:///model":          `"" is not the name of a port of Service model, or the number of a port of its pods`,
		"k8s:///model:0":        `"0" is not the name of a port`,
		"k8s:///model?x=1:call": `"model?x=1" is not the name of a Service`,
	} {
		_, err := Parse(target, Config{ServiceAccount: api.account})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v, want an error with %q", target, err, want)
		}
	}
	api.write(t, "ca.crt", "no certificate")
	for account, want := range map[string]string{
		api.account:                       "no service account: no certificate in ",
		filepath.Join(api.account, "nil"): "no such file or directory: k8s targets work in a pod with automountServiceAccountToken: true",
	} {
		_, err := Parse("k8s:///model:call", Config{ServiceAccount: account})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse with %s: %v, want an error with %q", account, err, want)
		}
	}
}
