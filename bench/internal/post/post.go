// Package post sends a request of OTLP over HTTP, for those plugins of the
// benchmark that have encoded it by themselves: no retries, no compression.
package post

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// Poster posts to one URL. It is safe for concurrent use.
type Poster struct {
	url    string
	client *http.Client
}

// New makes a Poster. It connects when it is first used.
func New(url string) *Poster {
	return &Poster{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}}
}

// Post sends an encoded request; nil means that it was taken.
func (p *Poster) Post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("post %s: %s", p.url, resp.Status)
	}
	return nil
}
