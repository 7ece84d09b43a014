package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// spansPerRequest is the number of spans of a request to hello.
const spansPerRequest = 4

// maxInFlight bounds the requests in flight. Beyond it, the pace slows down.
const maxInFlight = 64

// load sends requests at a steady pace and checks every response.
type load struct {
	url    string
	rate   int
	client *http.Client
	slots  chan struct{}
	inWork sync.WaitGroup
	// stop ends the pace; pacing waits for it.
	stop   chan struct{}
	pacing sync.WaitGroup

	mu     sync.Mutex
	phases []*phase // requests count for the last phase
}

// phase holds the results of a phase of load.
type phase struct {
	name      string
	sent      int
	latencies []time.Duration
	wrong     map[string]int // failures by message
}

func newLoad(url string, rate int) *load {
	return &load{
		url: url, rate: rate,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxInFlight}, Timeout: 20 * time.Second},
		slots:  make(chan struct{}, maxInFlight),
		phases: []*phase{{name: "start", wrong: map[string]int{}}},
	}
}

// wanted maps hello's routes to their responses.
var wanted = map[string]struct {
	status int
	body   string
}{
	"/":       {http.StatusOK, "Hello world!\n"},
	"/fail":   {http.StatusInternalServerError, ""}, // any body
	"/stream": {http.StatusOK, "one\ntwo\nthree\n"},
}

// begin starts a phase; end ends it.
func (l *load) begin(name string) {
	l.mu.Lock()
	l.phases = append(l.phases, &phase{name: name, wrong: map[string]int{}})
	l.mu.Unlock()
	l.stop = make(chan struct{})
	l.pacing.Go(func() {
		pace := time.NewTicker(time.Second / time.Duration(l.rate))
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-l.stop:
				return
			case <-pace.C:
			}
			path := "/"
			switch n % 20 {
			case 7:
				path = "/fail"
			case 13:
				path = "/stream"
			}
			l.send(path, "")
		}
	})
}

// end ends the phase, waits for its last response and closes all connections.
func (l *load) end() {
	close(l.stop)
	l.pacing.Wait()
	l.inWork.Wait()
	l.client.CloseIdleConnections()
}

// phase runs a whole phase.
func (l *load) phase(name string, lasts time.Duration) {
	l.begin(name)
	<-time.After(lasts)
	l.end()
}

// extra sends a further request with the id, and does not wait for the response.
func (l *load) extra(id string) { l.send("/", id) }

func (l *load) send(path, id string) {
	l.slots <- struct{}{}
	l.inWork.Go(func() {
		defer func() { <-l.slots }()
		begun := time.Now()
		wrong := l.ask(path, id)
		took := time.Since(begun)
		l.mu.Lock()
		defer l.mu.Unlock()
		p := l.phases[len(l.phases)-1]
		p.sent++
		if wrong != nil {
			p.wrong[wrong.Error()]++
		}
		if path == "/" {
			p.latencies = append(p.latencies, took)
		}
	})
}

// ask sends a request and returns an error if the response is wrong.
func (l *load) ask(path, id string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, l.url+path, http.NoBody)
	if err != nil {
		return err
	}
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	want := wanted[path]
	if resp.StatusCode != want.status || want.body != "" && string(body) != want.body {
		return fmt.Errorf("%s: status %d, body %.80q", path, resp.StatusCode, body)
	}
	return nil
}

// sent returns the total number of requests. Call it only between phases.
func (l *load) sent() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.phases {
		n += p.sent
	}
	return n
}

// quantile returns the latency that the given share of the phase's plain requests did
// not exceed.
func (p *phase) quantile(share float64) time.Duration {
	if len(p.latencies) == 0 {
		return 0
	}
	slices.Sort(p.latencies)
	return p.latencies[min(len(p.latencies)-1, int(share*float64(len(p.latencies))))]
}

func (p *phase) failed() (n int) {
	for _, count := range p.wrong {
		n += count
	}
	return n
}
