//go:build linux

package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A result is what the callers of a load saw.
type result struct {
	Requests int
	OK       int            // answers of status 200
	Errors   map[string]int // other answers, and errors by their text
	P50, P99 time.Duration
	Max      time.Duration
}

// loadMain calls a URL at a rate, and prints a result as JSON. SIGTERM ends it early.
func loadMain(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	url := flags.String("url", "", "the URL")
	body := flags.String("body", "", "the body of each POST; empty: GET")
	duration := flags.Duration("for", 10*time.Second, "how long")
	callers := flags.Int("callers", 16, "how many callers, each with one request at a time")
	rate := flags.Int("rate", 300, "requests per second of all callers together")
	fresh := flags.Bool("fresh", false, "make a connection for each request")
	timeout := flags.Duration("timeout", 10*time.Second, "of a request")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *duration)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	r := result{Errors: map[string]int{}}
	every := time.Duration(*callers) * time.Second / time.Duration(*rate)
	var group sync.WaitGroup
	for i := range *callers {
		group.Go(func() {
			transport := &http.Transport{DisableKeepAlives: *fresh, MaxIdleConnsPerHost: 1}
			client := &http.Client{Timeout: *timeout, Transport: transport}
			defer transport.CloseIdleConnections()
			// The callers begin one after the other.
			next := time.NewTimer(every * time.Duration(i) / time.Duration(*callers))
			for {
				select {
				case <-next.C:
				case <-ctx.Done():
					return
				}
				begin := time.Now()
				answer := call(client, *url, *body)
				elapsed := time.Since(begin)
				next.Reset(every - elapsed)
				mu.Lock()
				r.Requests++
				if took = append(took, elapsed); answer == "200" {
					r.OK++
				} else {
					r.Errors[answer]++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if slices.Sort(took); len(took) > 0 {
		r.P50, r.P99, r.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// call makes a request, and returns the status of the answer or the error.
func call(client *http.Client, url, body string) string {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err.Error()
	}
	return strconv.Itoa(resp.StatusCode)
}
