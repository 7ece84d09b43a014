package servetrace

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// tally is what clients under load saw.
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

// load has clients send requests over connections that they keep, until each was
// turned away or more says no. The channel is closed then.
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

// checkBooks holds what clients saw against the access log and the spans of a
// service that has ended: what was served was answered in whole, and all of its
// spans came out.
func checkBooks(t *testing.T, p *proc, seen *tally) {
	t.Helper()
	for _, what := range seen.other {
		t.Errorf("a client got %s", what)
	}
	lines := map[string]int64{}
	for line := range strings.Lines(p.log.String()) {
		if _, rest, is := strings.Cut(line, "msg=request "); is {
			_, rest, _ = strings.Cut(rest, "status=")
			status, _, _ := strings.Cut(rest, " ")
			lines[status]++
		}
	}
	// A refusal can get lost with a connection that was idle until then: net/http
	// closes those. Its client goes elsewhere either way.
	if lines["200"] != seen.served.Load() || lines["503"] < seen.refused.Load() || len(lines) > 2 {
		t.Errorf("clients were served %d times and refused %d times, and the log has %v", seen.served.Load(), seen.refused.Load(), lines)
	}
	families, traces := map[string]int64{}, map[string]int{}
	for _, s := range p.spans() {
		family, _, _ := strings.Cut(s.Name, " ")
		families[family]++
		traces[s.Context.TraceID]++
	}
	for _, family := range []string{"proxy_http_request", "route_to_replica", "replica_handle_request", "user"} {
		if families[family] != seen.served.Load() {
			t.Errorf("%d spans %s for %d requests", families[family], family, seen.served.Load())
		}
	}
	if int64(len(traces)) != seen.served.Load() {
		t.Errorf("%d traces for %d requests", len(traces), seen.served.Load())
	}
	if !strings.Contains(p.log.String(), "msg=stopped") {
		t.Errorf("no word of the end, or spans were lost:\n%s", tail(p.log.String()))
	}
}

// tail is the end of a log.
func tail(text string) string { return text[max(0, len(text)-2000):] }

// A service that is told to stop under load answers what it has taken, says no to
// the rest, and sends the spans of all.
func TestDrainUnderLoad(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console")
	busy := make(chan struct{})
	var once sync.Once
	seen, done := load(p, 8, func(seen *tally) bool {
		if seen.served.Load() >= 200 {
			once.Do(func() { close(busy) })
		}
		return true
	})
	<-busy
	p.signal(syscall.SIGTERM)
	<-done
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	checkBooks(t, p, seen)
	if n := seen.refused.Load() + seen.gone.Load(); n != 8 {
		t.Errorf("%d clients of 8 were turned away", n)
	}
}

// Clients that go elsewhere as soon as health says so, as load balancers do, have
// every request served.
func TestDrainLosesNoRequest(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_MIN_DRAINING_PERIOD=5s")
	busy := make(chan struct{})
	var once sync.Once
	var elsewhere atomic.Bool
	seen, done := load(p, 8, func(seen *tally) bool {
		if seen.served.Load() >= 200 {
			once.Do(func() { close(busy) })
		}
		return !elsewhere.Load()
	})
	<-busy
	p.signal(syscall.SIGTERM)
	for healthy(p.url) {
	}
	elsewhere.Store(true)
	<-done
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	checkBooks(t, p, seen)
	if seen.refused.Load() > 0 || seen.gone.Load() > 0 {
		t.Errorf("%d requests were refused, %d went nowhere", seen.refused.Load(), seen.gone.Load())
	}
}
