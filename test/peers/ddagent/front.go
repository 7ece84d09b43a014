package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
)

// v1Path is the endpoint of protocol 1.0.
const v1Path = "/v1.0/traces"

// startFront starts the server in front of the agent for -without-v1: it removes the
// endpoint of protocol 1.0 from the agent's description, and answers for it like an agent
// without it. It returns nil without the flag.
func startFront(o options) (*http.Server, error) {
	if !o.withoutV1 {
		return nil, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(o.port)))
	if err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "agent"})
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.inner)
	}}
	proxy.ModifyResponse = hideV1
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.Handle(v1Path, http.NotFoundHandler())
	server := &http.Server{Handler: mux}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "front:", err)
			os.Exit(1)
		}
	}()
	return server, nil
}

// hideV1 takes protocol 1.0 out of an answer to GET /info.
func hideV1(response *http.Response) error {
	if response.Request.URL.Path != "/info" {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	var info map[string]json.RawMessage
	if err := json.Unmarshal(body, &info); err != nil {
		return err
	}
	var endpoints []string
	if err := json.Unmarshal(info["endpoints"], &endpoints); err != nil {
		return err
	}
	endpoints = slices.DeleteFunc(endpoints, func(e string) bool { return e == v1Path })
	if info["endpoints"], err = json.Marshal(endpoints); err != nil {
		return err
	}
	if body, err = json.Marshal(info); err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}
