package serving

import (
	"context"
	"net/http"
	"testing"
)

// TestAccessLogLevel: a status of 200 that is not the whole truth shows in the
// level, unless it was the client that left.
func TestAccessLogLevel(t *testing.T) {
	streams := func(w http.ResponseWriter, req *http.Request) error {
		writeBegin(w)
		<-req.Context().Done()
		return context.Cause(req.Context())
	}
	waits := func(_ http.ResponseWriter, req *http.Request) error {
		<-req.Context().Done()
		return nil
	}
	for _, tt := range []struct {
		name    string
		timeout bool
		handler HandlerFunc
		leaves  bool
		status  float64
		level   string
	}{
		{name: "cut by the timeout", timeout: true, handler: streams, status: 200, level: "WARN"},
		{name: "timeout", timeout: true, handler: waits, status: 408, level: "INFO"},
		{name: "client left mid-stream", handler: streams, leaves: true, status: 200, level: "INFO"},
		{name: "failed mid-stream", handler: func(w http.ResponseWriter, _ *http.Request) error {
			writeBegin(w)
			return errBoom
		}, status: 200, level: "ERROR"},
		{name: "failed", handler: func(http.ResponseWriter, *http.Request) error { return errBoom }, status: 500, level: "ERROR"},
		{name: "whole", handler: func(http.ResponseWriter, *http.Request) error { return nil }, status: 200, level: "INFO"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{}
			if tt.timeout {
				cfg.RequestTimeout = shortTimeout
			}
			r := start(t, cfg, tt.handler)
			c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = c.Read(make([]byte, 1)) // the response has begun, or is cut
			if tt.leaves {
				_ = c.Close()
			}
			line := r.access.take(t, "request", 1)[0]
			if line["level"] != tt.level || line["status"] != tt.status {
				t.Errorf("level %v, status %v, want %s, %v", line["level"], line["status"], tt.level, tt.status)
			}
		})
	}
}
