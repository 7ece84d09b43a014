package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
	"google.golang.org/protobuf/encoding/protojson"
)

// The paths for an agent's traces and statistics. Its other requests are accepted and
// discarded.
const (
	tracesPath = "/api/v0.2/traces"
	statsPath  = "/api/v0.2/stats"
)

// intake replaces Datadog's own back end.
type intake struct {
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup

	mu sync.Mutex // guards the files: payloads do not mix
	// json and frames are nil where not asked for.
	json, frames, stats *os.File
	err                 error
}

func startIntake(o options) (*intake, error) {
	in := &intake{}
	var err error
	if in.json, err = openFile(o.json); err != nil {
		return nil, err
	}
	if in.frames, err = openFile(o.frames); err != nil {
		return nil, err
	}
	if in.stats, err = openFile(o.stats); err != nil {
		return nil, err
	}
	if in.listener, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
		return nil, err
	}
	in.server = &http.Server{Handler: in}
	in.serving.Go(func() {
		if err := in.server.Serve(in.listener); !errors.Is(err, http.ErrServerClosed) {
			in.fail(err)
		}
	})
	return in, nil
}

// openFile opens a file to append to; nil for no name.
func openFile(name string) (*os.File, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return os.Stdout, nil
	}
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (in *intake) url() string { return "http://" + in.listener.Addr().String() }

// stop ends the intake after the agent, and reports write errors.
func (in *intake) stop() error {
	err := in.server.Close()
	in.serving.Wait()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range []*os.File{in.json, in.frames, in.stats} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return errors.Join(err, in.err)
}

func (in *intake) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.err = errors.Join(in.err, err)
}

func (in *intake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := read(r)
	if err == nil && r.URL.Path == tracesPath {
		err = in.write(body)
	}
	if err == nil && r.URL.Path == statsPath {
		err = in.writeStatistics(body)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "intake: %s: %v\n", r.URL.Path, err)
		in.fail(err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// read gives the body as the agent meant it.
func read(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	unpacked, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}

// writeStatistics appends a StatsPayload to its file.
func (in *intake) writeStatistics(body []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stats == nil {
		return nil
	}
	_, err := in.stats.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...))
	return err
}

// write appends an AgentPayload to the files, except for one without spans, which the agent
// sends for its own use.
func (in *intake) write(body []byte) error {
	var payload pb.AgentPayload
	if err := payload.UnmarshalVT(body); err != nil {
		return err
	}
	if len(payload.TracerPayloads) == 0 && len(payload.IdxTracerPayloads) == 0 {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.frames != nil {
		frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
		if _, err := in.frames.Write(append(frame, body...)); err != nil {
			return err
		}
	}
	if in.json != nil {
		text, err := protojson.Marshal(&payload)
		if err != nil {
			return err
		}
		if _, err := in.json.Write(append(bytes.TrimSpace(text), '\n')); err != nil {
			return err
		}
	}
	return nil
}
