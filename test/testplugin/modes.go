package testplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/pluginsdk"
)

// modes are the behaviours. The argument is the text after the colon.
var modes = map[string]func(arg string){
	// Good plugins.
	"record":   func(string) { exporter(record) }, // delivers: appends to its record
	"stock":    stock,                             // like record, on go-plugin's plugin.Serve
	"small":    func(arg string) { limited(number(arg)) },
	"filter":   filter,                                        // drops spans with a name that begins with arg
	"partial":  partial,                                       // rejects arg spans of each batch
	"hesitant": func(string) { hesitant(); exporter(record) }, // is slow to refuse a host of another version
	// Behaves as the names of its spans demand, see modes_scripted.go.
	"scripted": func(string) { pluginsdk.Main(scripted(nil)) },
	// The same as a processor plugin, which sets an attribute on the spans.
	"processor": func(string) { pluginsdk.Main(scriptedProcessor()) },

	// Plugins with trouble.
	"slow":      func(arg string) { exporter(slow(duration(arg))) },
	"hang":      func(string) { exporter(hang) },         // Export returns when it is cancelled
	"deaf":      func(string) { exporter(deaf) },         // Export never returns
	"closed":    func(string) { exporter(closed) },       // closes its socket and connections, and stays alive
	"flaky":     func(arg string) { flaky(number(arg)) }, // the first arg calls of a process fail
	"permanent": func(string) { exporter(refuse) },
	"panic":     func(string) { exporter(func(context.Context, *pluginsdk.Batch) error { panic("export") }) },
	"crash":     func(arg string) { crash(number(arg)) }, // ends at its arg-th call, and delivers before
	"poison":    poison,                                  // fails at a certain span, see modes_poison.go
	"snoop":     snoop,                                   // reveals everything it sees, see modes_snoop.go
	"betray":    betray,                                  // reveals its secrets in every way, see modes_betray.go
	"refuse":    func(string) { badConfiguration() },
	"lateready": func(arg string) { pause(duration(arg)); exporter(record) },
	"child":     func(string) { child() },  // has a grandchild in its group
	"daemon":    func(string) { daemon() }, // has a grandchild outside its group, see modes_kin.go
	"spin":      func(string) { spin() },
	"crowd":     func(arg string) { crowd(number(arg)) },
	"quitdeaf":  func(string) { quitdeaf() },
	"stranger":  func(string) { stranger() }, // runs as another user
	"flood":     func(arg string) { flood(number(arg)) },

	// Programs that are not plugins, or not of this host.
	"exit":    func(string) { say(os.Stderr, "no licence for this plugin\n"); os.Exit(3) },
	"hello":   func(string) { say(os.Stdout, "hello, world\n") },
	"silent":  func(arg string) { pause(duration(arg)) },
	"noise":   func(arg string) { noise(number(arg)); exporter(record) },
	"version": func(arg string) { say(os.Stdout, "1|"+arg+"|unix|/nowhere|grpc\n"); pause(time.Minute) },
	"alien":   func(string) { serveStock("ALIEN_PLUGIN", false) }, // of another program, by go-plugin
	"netrpc":  func(string) { say(os.Stdout, "1|1|unix|/nowhere|netrpc\n"); pause(time.Minute) },
}

func hesitant() {
	if os.Getenv("PLUGIN_PROTOCOL_VERSIONS") == "4095" {
		say(os.Stdout, "this host speaks another version\n")
		pause(300 * time.Millisecond)
		os.Exit(1)
	}
}

func say(f *os.File, text string) {
	if _, err := f.WriteString(text); err != nil {
		os.Exit(4)
	}
}

func number(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		say(os.Stderr, "testplugin: "+err.Error()+"\n")
		os.Exit(2)
	}
	return n
}

func duration(arg string) time.Duration {
	d, err := time.ParseDuration(arg)
	if err != nil {
		say(os.Stderr, "testplugin: "+err.Error()+"\n")
		os.Exit(2)
	}
	return d
}

func pause(d time.Duration) { <-time.After(d) }

type export = func(context.Context, *pluginsdk.Batch) error

func spec(f export) pluginsdk.Spec {
	return pluginsdk.Spec{
		Name:    "testplugin",
		Version: "1.2.3",
		Env:     []string{"TESTPLUGIN_*"},
		Exporter: func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
			s.Log.Info("configured", "canary", s.Getenv("TESTPLUGIN_CANARY"), "service", s.Context.ServiceName)
			return pluginsdk.ExportFunc(f), nil
		},
	}
}

func exporter(f export) { pluginsdk.Main(spec(f)) }

// record delivers a batch: a line in a single write, so that a kill leaves all of it or
// nothing.
func record(_ context.Context, b *pluginsdk.Batch) error {
	return appendRecord(lineOf(b))
}

func lineOf(b *pluginsdk.Batch) Batch {
	line := Batch{ID: b.ID(), Attempt: b.Attempt(), PID: os.Getpid()}
	for span := range b.Spans() {
		line.Spans = append(line.Spans, span.Name())
		line.IDs = append(line.IDs, span.SpanID().String())
	}
	return line
}

func appendRecord(line Batch) error {
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(recordFile(os.Args[0]), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Close())
}

func slow(d time.Duration) export {
	return func(ctx context.Context, b *pluginsdk.Batch) error {
		select {
		case <-time.After(d):
			return record(ctx, b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func hang(ctx context.Context, _ *pluginsdk.Batch) error { <-ctx.Done(); return ctx.Err() }

func deaf(context.Context, *pluginsdk.Batch) error { select {} }

// closed delivers the first batch, and meanwhile closes every descriptor except the
// standard ones.
func closed(ctx context.Context, b *pluginsdk.Batch) error {
	err := record(ctx, b)
	for fd := 3; fd < 64; fd++ {
		_ = syscall.Close(fd)
	}
	return errors.Join(err, hang(ctx, b))
}

func refuse(context.Context, *pluginsdk.Batch) error {
	return pluginsdk.Permanent(errors.New("the back end does not know this token"))
}

func flaky(calls int) {
	var made atomic.Int64
	exporter(func(ctx context.Context, b *pluginsdk.Batch) error {
		if made.Add(1) <= int64(calls) {
			return errors.New("the back end is restarting")
		}
		return record(ctx, b)
	})
}

func crash(at int) {
	var made atomic.Int64
	exporter(func(ctx context.Context, b *pluginsdk.Batch) error {
		if made.Add(1) < int64(at) {
			return record(ctx, b)
		}
		// In a separate goroutine, so that no library can recover it.
		go func() { panic("testplugin: crash") }()
		return hang(ctx, b)
	})
}

func partial(arg string) {
	exporter(func(ctx context.Context, b *pluginsdk.Batch) error {
		if err := record(ctx, b); err != nil {
			return err
		}
		return pluginsdk.Partial(number(arg), "name too long")
	})
}

func limited(spans int) {
	s := spec(record)
	s.Limits = pluginsdk.Limits{MaxBatchSpans: spans, MaxConcurrency: 1}
	pluginsdk.Main(s)
}

func filter(arg string) {
	s := spec(record)
	s.Processors = []pluginsdk.NewProcessor{
		pluginsdk.ProcessorFunc("by-name", func(_ context.Context, b *pluginsdk.Batch) error {
			for span := range b.Spans() {
				if strings.HasPrefix(span.Name(), arg) {
					span.Drop()
				}
			}
			return nil
		}),
	}
	pluginsdk.Main(s)
}

func badConfiguration() {
	s := spec(record)
	s.Exporter = func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return nil, errors.New("TESTPLUGIN_TOKEN is empty: set it")
	}
	pluginsdk.Main(s)
}

// noise prints the given number of bytes to standard output before the handshake, with
// a newline only at the end.
func noise(bytes int) { say(os.Stdout, strings.Repeat("noise ", bytes/6)+"\n") }

// flood prints the given number of lines to both descriptors for each batch.
func flood(lines int) {
	stdout := os.NewFile(1, "stdout") // the SDK points os.Stdout elsewhere
	exporter(func(ctx context.Context, b *pluginsdk.Batch) error {
		for i := range lines {
			say(os.Stderr, fmt.Sprintf("line %d\n", i))
			say(stdout, strings.Repeat("x", 1000)) // never a newline
		}
		return record(ctx, b)
	})
}

// child starts a grandchild that ignores its standard input, and records its id.
func child() {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		say(os.Stderr, err.Error()+"\n")
		os.Exit(4)
	}
	if err := appendRecord(Batch{ID: "grandchild", PID: cmd.Process.Pid}); err != nil {
		os.Exit(4)
	}
	exporter(record)
}

// stock is a plugin on go-plugin's own server, with plain OTLP and without Lifecycle.
// As "stock:empty" it does not even have OTLP.
func stock(arg string) { serveStock("SERVETRACE_PLUGIN_MAGIC_COOKIE", arg == "empty") }

func serveStock(cookie string, empty bool) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion:  1,
			MagicCookieKey:   cookie,
			MagicCookieValue: "6f1d0a52c7b84c1e9d3b0c6a54e2f97a",
		},
		VersionedPlugins: map[int]goplugin.PluginSet{1: {"traces": stockPlugin{empty: empty}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
	})
}

type stockPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	empty bool
}

func (p stockPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	if !p.empty {
		coltracepb.RegisterTraceServiceServer(s, stockTraces{})
	}
	return nil
}

func (stockPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is no client")
}

type stockTraces struct {
	coltracepb.UnimplementedTraceServiceServer
}

func (stockTraces) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	line := Batch{ID: "stock", PID: os.Getpid()}
	for _, rs := range r.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				line.Spans = append(line.Spans, span.GetName())
			}
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, appendRecord(line)
}
