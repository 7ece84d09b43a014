package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/total"
)

// status is the part of hello's JSON status that chaos reads.
type status struct {
	Time  time.Time `json:"time"` // may be some ms old
	Spans struct {
		Ended    uint64            `json:"ended"`
		Accepted uint64            `json:"accepted"`
		Refused  map[string]uint64 `json:"refused"`
	} `json:"spans"`
	Queue struct {
		Bytes      int64 `json:"bytes"`
		LimitBytes int64 `json:"limit_bytes"`
	} `json:"queue"`
	Plugins []struct {
		Name    string `json:"name"`
		State   string `json:"state"`
		Starts  uint64 `json:"starts"`
		Crashes uint64 `json:"crashes"`
		Spans   struct {
			Accepted  uint64            `json:"accepted"`
			Delivered uint64            `json:"delivered"`
			Rejected  map[string]uint64 `json:"rejected"`
			Filtered  map[string]uint64 `json:"filtered"`
			Dropped   map[string]uint64 `json:"dropped"`
			Waiting   uint64            `json:"waiting"`
		} `json:"spans"`
	} `json:"plugins"`
}

// faults returns the errors in the delivery accounting and the memory bound.
func (s status) faults() (list []string) {
	if sum := s.Spans.Accepted + total.Of(s.Spans.Refused); sum != s.Spans.Ended {
		list = append(list, fmt.Sprintf("%d spans ended, %d refused or accepted", s.Spans.Ended, sum))
	}
	for _, p := range s.Plugins {
		b := p.Spans
		if sum := b.Delivered + total.Of(b.Rejected) + total.Of(b.Filtered) + total.Of(b.Dropped) + b.Waiting; sum != b.Accepted {
			list = append(list, fmt.Sprintf("plugin %q: %d spans accepted, %d accounted for", p.Name, b.Accepted, sum))
		}
	}
	if s.Queue.Bytes > s.Queue.LimitBytes {
		list = append(list, fmt.Sprintf("%d bytes of spans held, the bound is %d", s.Queue.Bytes, s.Queue.LimitBytes))
	}
	return list
}

// waiting returns the number of waiting spans of all plugins.
func (s status) waiting() (n uint64) {
	for _, p := range s.Plugins {
		n += p.Spans.Waiting
	}
	return n
}

// monitor samples the status repeatedly.
type monitor struct {
	url    string
	client *http.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	last    status
	samples int
	bytes   int64                     // maximum
	states  map[string]map[string]int // number of samples by plugin and state
	wrong   map[string]int
}

// monitorPause is the time between two samples.
const monitorPause = 100 * time.Millisecond

func startMonitor(url string) *monitor {
	ctx, cancel := context.WithCancel(context.Background())
	m := &monitor{
		url: url, client: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}, stop: cancel,
		states: map[string]map[string]int{}, wrong: map[string]int{},
	}
	m.ended.Go(func() {
		for ctx.Err() == nil {
			m.look(ctx)
			select {
			case <-time.After(monitorPause):
			case <-ctx.Done():
			}
		}
	})
	return m
}

// end stops the sampling and closes the connection.
func (m *monitor) end() {
	m.stop()
	m.ended.Wait()
	m.client.CloseIdleConnections()
}

func (m *monitor) look(ctx context.Context) {
	s, err := m.ask(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			m.wrong["status: "+err.Error()]++
		}
		return
	}
	m.keepLocked(s)
	m.samples++
	m.bytes = max(m.bytes, s.Queue.Bytes)
	for _, text := range s.faults() {
		m.wrong[text]++
	}
	for _, p := range s.Plugins {
		if m.states[p.Name] == nil {
			m.states[p.Name] = map[string]int{}
		}
		m.states[p.Name][p.State]++
	}
}

// keepLocked stores s as the last sample, unless there was a later one.
func (m *monitor) keepLocked(s status) {
	if !s.Time.Before(m.last.Time) {
		m.last = s
	}
}

func (m *monitor) ask(ctx context.Context) (s status, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+".json", http.NoBody)
	if err != nil {
		return s, err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return s, err
	}
	err = json.NewDecoder(resp.Body).Decode(&s)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return s, err
}

// settle waits until no spans wait for any plugin. Spans that still wait after patience
// will be dropped with a reason.
func (m *monitor) settle() {
	begun := time.Now()
	for time.Since(begun) < patience {
		if s, err := m.ask(context.Background()); err == nil && s.Time.After(begun) && s.waiting() == 0 {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.keepLocked(s)
			return
		}
		<-time.After(monitorPause)
	}
}

// seen returns the states of a plugin, with their shares of the samples.
func (m *monitor) seen(name string) string {
	var list []string
	for _, state := range slices.Sorted(maps.Keys(m.states[name])) {
		list = append(list, fmt.Sprintf("%s %d%%", state, 100*m.states[name][state]/max(1, m.samples)))
	}
	return strings.Join(list, ", ")
}
