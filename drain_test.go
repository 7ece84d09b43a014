package servetrace

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// tally counts the results of clients under load.
type tally struct {
	served  atomic.Int64 // 200, with the whole body
	refused atomic.Int64 // 503 that says the service drains
	gone    atomic.Int64 // no connection, or one that was closed before an answer began

	mu    sync.Mutex
	other []string
}

func (c *tally) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.other = append(c.other, what)
}

// load runs clients that send requests over kept connections, until each was refused or
// more returns false. The channel is closed then.
func load(p *proc, clients int, more func(*tally) bool) (*tally, <-chan struct{}) {
	seen, done := new(tally), make(chan struct{})
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			defer client.CloseIdleConnections()
			for more(seen) && seen.one(client, p.url+"/") {
			}
		})
	}
	go func() { // ends with the clients
		group.Wait()
		close(done)
	}()
	return seen, done
}

// one sends a request, and reports whether it was served.
func (c *tally) one(client *http.Client, url string) bool {
	resp, err := client.Get(url)
	if err != nil {
		c.gone.Add(1)
		return false
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	switch {
	case err == nil && resp.StatusCode == http.StatusOK && string(body) == "hello":
		c.served.Add(1)
		return true
	case err == nil && resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), "drained"):
		c.refused.Add(1)
	default:
		c.note(fmt.Sprintf("%s, %q, %v", resp.Status, body, err))
	}
	return false
}

// checkOutcomes compares the clients' results with the access log and the spans of a service
// that has ended: each served request was answered whole, and all its spans came out.
func checkOutcomes(t *testing.T, p *proc, seen *tally, rpc *calls) {
	t.Helper()
	for _, what := range seen.other {
		t.Errorf("a client got %s", what)
	}
	for _, err := range rpc.other {
		t.Errorf("a gRPC client got %v", err)
	}
	lines := map[string]int64{}
	for line := range strings.Lines(p.log.String()) {
		if found := requestLine.FindStringSubmatch(line); found != nil {
			lines[found[1]]++
		}
	}
	// A refusal may be lost with an idle connection, because net/http closes idle
	// connections. Its client goes elsewhere in both cases.
	if lines["200"] != seen.served.Load() || lines["503"] < seen.refused.Load() || lines["OK"] != rpc.served.Load() {
		t.Errorf("clients were served %d times and refused %d times, by gRPC served %d times, and the log has %v",
			seen.served.Load(), seen.refused.Load(), rpc.served.Load(), lines)
	}
	for status := range lines {
		if !slices.Contains([]string{"200", "503", "OK", "UNAVAILABLE"}, status) {
			t.Errorf("requests ended with %s", status)
		}
	}
	families, traces := map[string]int64{}, map[string]int{}
	for _, s := range p.spans() {
		family, _, _ := strings.Cut(s.Name, " ")
		families[family]++
		traces[s.Context.TraceID]++
	}
	both := seen.served.Load() + rpc.served.Load()
	for family, want := range map[string]int64{
		"proxy_http_request": seen.served.Load(), "proxy_grpc_request": rpc.served.Load(),
		"route_to_replica": both, "replica_handle_request": both, "user": both,
	} {
		if families[family] != want {
			t.Errorf("%d spans %s, want %d", families[family], family, want)
		}
	}
	if int64(len(traces)) != both {
		t.Errorf("%d traces for %d requests", len(traces), both)
	}
	if text := p.log.String(); !strings.Contains(text, "msg=stopped") {
		t.Errorf("no word of the end, or spans were lost:\n%s", text[max(0, len(text)-2000):])
	}
}

// requestLine finds how a request ended.
var requestLine = regexp.MustCompile(`msg=request method=\S+ (?:status|code)=(\S+)`)

// drainUnder keeps a service busy with eight HTTP clients and four gRPC clients, and then
// stops it. Clients with look go elsewhere when the health check fails.
func drainUnder(t *testing.T, look bool, env ...string) (*tally, *calls) {
	t.Helper()
	p := startProc(t, append(env, "SERVE_TRACING_EXPORTER_PLUGIN=console", "WITH_GRPC=1", "SERVE_GRPC_PORT=0")...)
	var elsewhere atomic.Bool
	more := func() bool { return !elsewhere.Load() }
	rpc, rpcDone := loadRPC(t, p, 4, more)
	busy := make(chan struct{})
	var once sync.Once
	seen, done := load(p, 8, func(seen *tally) bool {
		if seen.served.Load() >= 200 && rpc.served.Load() >= 50 {
			once.Do(func() { close(busy) })
		}
		return more()
	})
	<-busy
	p.signal(syscall.SIGTERM)
	for look && healthy(p.url) {
	}
	elsewhere.Store(look)
	<-done
	<-rpcDone
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if look && !strings.Contains(p.log.String(), "min_draining_period=3s") {
		t.Errorf("the start line has no draining period:\n%s", p.log)
	}
	checkOutcomes(t, p, seen, rpc)
	return seen, rpc
}

// A service that stops under load answers the accepted requests, refuses the rest, and
// sends all spans.
func TestDrainUnderLoad(t *testing.T) {
	seen, rpc := drainUnder(t, false)
	if n := seen.refused.Load() + seen.gone.Load(); n != 8 || rpc.away.Load() != 4 {
		t.Errorf("%d clients of 8 were turned away, and %d of 4 of gRPC", n, rpc.away.Load())
	}
}

// Clients that go elsewhere when the health check fails, as load balancers do, lose no
// request. In a Kubernetes pod, that needs no setting.
func TestDrainLosesNoRequest(t *testing.T) {
	seen, rpc := drainUnder(t, true, "KUBERNETES_SERVICE_HOST=10.96.0.1")
	if n := seen.refused.Load() + seen.gone.Load() + rpc.away.Load(); n > 0 {
		t.Errorf("%d requests were refused, or went nowhere", n)
	}
}
