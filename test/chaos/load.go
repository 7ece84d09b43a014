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

// spansOfRequest is how many spans a request of hello makes.
const spansOfRequest = 4

// mostAtOnce bounds the requests in flight; the pace waits beyond.
const mostAtOnce = 64

// load sends requests at a steady pace and judges every answer.
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
	phases []*phase // the last one is counted into
}

// phase is the outcome of a stretch of load.
type phase struct {
	name      string
	sent      int
	latencies []time.Duration
	wrong     map[string]int // by what was wrong
}

func newLoad(url string, rate int) *load {
	return &load{
		url: url, rate: rate,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: mostAtOnce}, Timeout: 20 * time.Second},
		slots:  make(chan struct{}, mostAtOnce),
		phases: []*phase{{name: "start", wrong: map[string]int{}}},
	}
}

// wanted are the answers of hello's routes.
var wanted = map[string]struct {
	status int
	body   string
}{
	"/":       {http.StatusOK, "Hello world!\n"},
	"/fail":   {http.StatusInternalServerError, ""}, // whatever it says
	"/stream": {http.StatusOK, "one\ntwo\nthree\n"},
}

// begin begins a phase: load until end.
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

// end ends the phase, waits for its last answer and lets go of all
// connections.
func (l *load) end() {
	close(l.stop)
	l.pacing.Wait()
	l.inWork.Wait()
	l.client.CloseIdleConnections()
}

// phase is a whole one.
func (l *load) phase(name string, lasts time.Duration) {
	l.begin(name)
	<-time.After(lasts)
	l.end()
}

// extra sends a request with an id, beside the pace, and does not wait.
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

// ask sends one request; the error says what is wrong with the answer.
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

// sent is how many requests there were in all. Only between phases.
func (l *load) sent() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.phases {
		n += p.sent
	}
	return n
}

// quantile is the latency that a share of the phase's plain requests stayed
// within.
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
