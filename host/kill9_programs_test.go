package host_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/pluginsdk"
)

// The points in the life of a batch at which the programs of this file can stop, in
// order. The test names the point in the file "stop" of the program's folder. The program
// writes the file "at" there and waits for the file "go". It stops once: the next process
// finds "at".
const (
	pointReceived     = "received"     // the plugin has the call
	pointSent         = "sent"         // the back end has the batch and has not stored it
	pointStored       = "stored"       // it has stored it and not answered
	pointAnswered     = "answered"     // the plugin has the answer
	pointHalf         = "half"         // half of the acknowledgement is out
	pointAcknowledged = "acknowledged" // all of it is
)

// here is a file in the folder of the running program.
func here(name string) string { return filepath.Join(filepath.Dir(os.Args[0]), name) }

// stopAt stops at a point if the test asks for it, and reports whether it did.
func stopAt(point string) bool {
	want, err := os.ReadFile(here("stop"))
	if err != nil || string(want) != point {
		return false
	}
	at, err := os.OpenFile(here("at"), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	_ = at.Close()
	for !exists(here("go")) { // or this process is killed
		<-time.After(time.Millisecond)
	}
	return true
}

// stored is a batch as plugin and back end speak of it, and as it lies in the
// back end's file.
type stored struct {
	ID      string
	Attempt int
	Spans   []string
}

// runBackEnd serves the socket "backend": each line that comes in is a batch,
// which goes into the file "stored" before it is answered.
func runBackEnd() {
	_ = os.Remove(here("backend")) // of one that was killed
	listener, err := net.Listen("unix", here("backend"))
	if err != nil {
		os.Exit(2)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			os.Exit(2)
		}
		go func() { // ends with the connection, or the process
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				stopAt(pointSent)
				f, err := os.OpenFile(here("stored"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					return
				}
				_, err = f.Write(append(lines.Bytes(), '\n'))
				if errors.Join(err, f.Close()) != nil {
					return
				}
				stopAt(pointStored)
				if _, err := io.WriteString(conn, "taken\n"); err != nil {
					return
				}
			}
		}()
	}
}

// toBackEnd has the back end take a batch.
func toBackEnd(b *pluginsdk.Batch) error {
	batch := stored{ID: b.ID(), Attempt: b.Attempt()}
	for span := range b.Spans() {
		batch.Spans = append(batch.Spans, span.Name())
	}
	data, err := json.Marshal(batch)
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", here("backend"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(append(data, '\n')); err != nil {
		return err
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || answer != "taken\n" {
		return fmt.Errorf("the back end said %q: %w", answer, err)
	}
	return nil
}

// runRelay is a plugin in front of that back end. Between its socket and the
// host's there is a cutter, for points in the middle of an answer.
func runRelay() {
	var acknowledging atomic.Bool
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin) // the host is done, or dead
		cancel()
	}()
	ended := make(chan error, 1)
	go func() {
		ended <- pluginsdk.Run(ctx, pluginsdk.Env{
			Args: os.Args[:1], Environ: append(os.Environ(), "PLUGIN_UNIX_SOCKET_DIR="+here("inner")),
			Handshake: writer, Stdout: os.Stderr, Stderr: os.Stderr, Log: os.Stderr,
		}, pluginsdk.Spec{
			Name:   "relay",
			Limits: pluginsdk.Limits{MaxConcurrency: 1},
			Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
				return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
					stopAt(pointReceived)
					if err := toBackEnd(b); err != nil {
						return err
					}
					stopAt(pointAnswered)
					acknowledging.Store(true)
					return nil
				}), nil
			},
		})
	}()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		os.Exit(2)
	}
	inner := strings.Split(line, "|")[3]
	outer := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "relay")
	listener, err := net.Listen("unix", outer)
	if err != nil {
		os.Exit(2)
	}
	go func() { // ends with the process
		for {
			host, err := listener.Accept()
			if err != nil {
				return
			}
			go cutter{host: host, acknowledging: &acknowledging}.run(inner)
		}
	}()
	if _, err := io.WriteString(os.Stdout, strings.Replace(line, inner, outer, 1)); err != nil {
		os.Exit(2)
	}
	if <-ended != nil {
		os.Exit(1)
	}
}

// cutter passes one connection on, and can stop in the middle of the answer to
// Export, or behind it.
type cutter struct {
	host          net.Conn
	acknowledging *atomic.Bool
}

func (c cutter) run(inner string) {
	defer c.host.Close()
	plugin, err := net.Dial("unix", inner)
	if err != nil {
		return
	}
	defer plugin.Close()
	go func() { // ends with one of the connections
		_, _ = io.Copy(plugin, c.host)
		_ = plugin.Close()
	}()
	_ = c.answers(plugin) // the end of one of the connections, whichever
}

// An OK answer to Export in HTTP/2 (RFC 9113, section 4.1): a frame of data with an
// empty message of gRPC, then headers that end the stream.
const (
	frameHeader   = 9
	frameData     = 0x0
	frameHeaders  = 0x1
	flagEndStream = 0x1
)

var emptyMessage = make([]byte, 5)

// answers passes frames on from the plugin to the host.
func (c cutter) answers(plugin io.Reader) error {
	in := bufio.NewReader(plugin)
	var answering uint32 // the stream of the call that is being acknowledged
	for {
		header, err := in.Peek(frameHeader)
		if err != nil {
			return err
		}
		frame := make([]byte, frameHeader+(int(header[0])<<16|int(header[1])<<8|int(header[2])))
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		kind, flags := frame[3], frame[4]
		stream := uint32(frame[5])<<24 | uint32(frame[6])<<16 | uint32(frame[7])<<8 | uint32(frame[8])
		if kind == frameData && bytes.Equal(frame[frameHeader:], emptyMessage) && c.acknowledging.Load() {
			answering = stream
			if _, err := c.host.Write(frame[:frameHeader+2]); err != nil {
				return err
			}
			stopAt(pointHalf)
			frame = frame[frameHeader+2:]
		}
		if _, err := c.host.Write(frame); err != nil {
			return err
		}
		if answering != 0 && stream == answering && kind == frameHeaders && flags&flagEndStream != 0 {
			stopAt(pointAcknowledged)
			answering = 0
		}
	}
}

// runSender is a program with a Host and the plugin in its argument. It ends some spans,
// prints the id of the plugin's process, and runs until it is killed.
func runSender() {
	// Only the flush below seals the batch. On a slow machine, its age would seal fewer
	// spans.
	h, err := host.New(host.Config{Plugins: "p=" + os.Args[1], BatchAge: time.Minute, ExportTimeout: time.Minute},
		host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil || h.Start(context.Background()) != nil {
		os.Exit(2)
	}
	for h.Stats().Exporters[0].PID == 0 {
		<-time.After(time.Millisecond)
	}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
	for i := range spansOfKill {
		_, span := tracer.Start(context.Background(), fmt.Sprintf("s-%d", i))
		span.End()
	}
	if _, err := fmt.Fprintln(os.Stdout, h.Stats().Exporters[0].PID); err != nil {
		os.Exit(2)
	}
	_ = h.ForceFlush(context.Background()) // it is cut short, or the program is killed behind it
	select {}
}
