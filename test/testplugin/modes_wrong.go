package testplugin

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/pluginsdk"
)

// wrongModes are plugins with a single defect each, for the conformance suite, which
// must find it.
var wrongModes = map[string]func(arg string){
	// The handshake.
	"certificate": func(string) { crooked{line: func(good string) string { return good + "Q0VSVA" }}.run() },
	"tomorrow": func(string) {
		crooked{line: func(good string) string { return strings.Replace(good, "1|1|", "1|2|", 1) }}.run()
	},
	"elsewhere": func(string) { crooked{outside: true}.run() },
	"cookieless": func(string) {
		crooked{environ: []string{"SERVETRACE_PLUGIN_MAGIC_COOKIE=6f1d0a52c7b84c1e9d3b0c6a54e2f97a"}}.run()
	},
	"parrot": func(string) { crooked{line: parrot}.run() }, // takes the version that it is offered first
	"strict": func(string) { strict(); crooked{}.run() },   // wants to be offered version 1 alone
	"echo":   func(string) { crooked{line: func(good string) string { return good + "\n" + good }}.run() },

	// The calls of go-plugin's client.
	"unhealthy":    func(string) { crooked{unserved: "Health/Check"}.run() },
	"uncontrolled": func(string) { crooked{unserved: "GRPCController/Shutdown"}.run() },
	"unstdio":      func(string) { crooked{unserved: "GRPCStdio/StreamStdio"}.run() },

	// Describe.
	"fickle":   func(string) { fickle() },
	"shouting": func(string) { describes(protowire.AppendString(field(1), "Wrong Name")) },
	"greedy":   func(string) { describes(protowire.AppendString(field(6), "*")) },
	"premature": func(string) { // env_at_start, and another version with its variables
		answer := protowire.AppendVarint(protowire.AppendTag(nil, 8, protowire.VarintType), 1)
		if os.Getenv("TESTPLUGIN_CANARY") != "" {
			answer = append(answer, protowire.AppendString(field(2), "another")...)
		}
		describes(answer)
	},
	"negative": func(string) {
		describes(protowire.AppendBytes(field(5), protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1<<32-1)))
	},
	"strange": func(string) {
		describes(protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 7))
	},
	"dialer": func(string) { on("Lifecycle/Describe", dials) },
	// Not wrong: plugins of other versions of the contract.
	"newer": func(string) { describes(protowire.AppendString(field(4095), "of a later version")) },
	"older": func(string) {
		on("Lifecycle/Describe", func(*call) ([]byte, error) { return protowire.AppendString(field(1), "older"), nil })
	},

	// Configure.
	"undeclared": func(string) { undeclared() },
	"forgetful":  func(string) { forgetful() },
	"grumbler": func(string) { // a warning without a word
		on("Lifecycle/Configure", func(c *call) ([]byte, error) {
			reply, err := c.pass()
			return append(reply, protowire.AppendBytes(field(1), []byte{0x08, 0x01})...), err
		})
	},
	"rude":  func(string) { on("Lifecycle/Configure", rude) },
	"needy": func(string) { on("Lifecycle/Configure", needy) },

	// Export.
	"eager":       func(string) { eager() },
	"brittle":     func(string) { on(exportMethod, brittle) },
	"hopeful":     func(string) { on(exportMethod, hopeful) },
	"narrow":      func(string) { on(exportMethod, narrow) },
	"emptyhanded": func(string) { on(exportMethod, emptyhanded) },
	"formal":      func(string) { on(exportMethod, formal) },
	"oncer":       func(string) { oncer() },
	"crowded":     func(string) { crowded() },
	"boaster":     func(string) { on(exportMethod, boaster) },
	"miscount":    func(string) { on(exportMethod, miscount) },
	"inflator":    func(string) { on(exportMethod, inflator) },
	"garbled": func(string) {
		on(exportMethod, func(c *call) ([]byte, error) { _, err := c.pass(); return []byte{0xff}, err })
	},
	"softhearted": func(string) {
		crooked{spec: scripted(map[string]error{"permanent": errors.New("perhaps later")})}.run()
	},
	"hardhearted": func(string) {
		crooked{spec: scripted(map[string]error{"retryable": pluginsdk.Permanent(errors.New("no"))})}.run()
	},
	"queue":        func(string) { queue() },
	"stubborn":     func(string) { exporter(stubborn) },
	"conservative": func(string) { on(exportMethod, conservative) },

	// Process.
	"overreach": func(string) { // a patch that keeps more bytes than there are
		onProcess(func(c *call) ([]byte, error) {
			_, err := c.pass()
			keep := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1<<31)
			return protowire.AppendBytes(field(1), protowire.AppendBytes(field(1), keep)), err
		})
	},
	"nonsense":   func(string) { onProcess(answers(2, func([]byte) []byte { return []byte{0x0a, 0x7f} })) },
	"multiplier": func(string) { onProcess(answers(2, multiplied)) },
	"swallower":  func(string) { onProcess(answers(2, func([]byte) []byte { return nil })) },
	"exporting": func(string) {
		onProcess(func(*call) ([]byte, error) { return nil, status.Error(unimplemented, "not here") })
	},

	// Flush, Shutdown, the end.
	"flushless":   func(string) { crooked{unserved: "Lifecycle/Flush"}.run() },
	"leftover":    func(string) { on("Lifecycle/Flush", func(*call) ([]byte, error) { return []byte{0x08, 0x05}, nil }) },
	"unstoppable": func(string) { on("Lifecycle/Shutdown", failing) },
	"zombie":      func(string) { zombie() },
	"undying":     func(string) { crooked{deaf: true}.run() },
	"sigtermdeaf": func(string) { crooked{terminate: func() {}}.run() },
	"immortal":    func(string) { crooked{deaf: true, terminate: func() {}}.run() },
	"abrupt":      func(string) { crooked{spec: scripted(nil), terminate: func() { os.Exit(0) }}.run() },
	"interrupted": func(string) { crooked{interrupt: func() { os.Exit(130) }}.run() },
	"litter":      func(string) { crooked{end: litter}.run() },
	"badstatus":   func(string) { crooked{end: func() { os.Exit(3) }}.run() },
}

const exportMethod = "TraceService/Export"

// run serves record, unless there is another Spec.
func (k crooked) run() {
	if k.spec.Name == "" {
		k.spec = spec(record)
	}
	k.serve()
}

// on runs a plugin with a defect in a single method.
func on(method string, answer func(c *call) ([]byte, error)) {
	crooked{calls: func(c *call) ([]byte, error) {
		if c.method == method {
			return answer(c)
		}
		return c.pass()
	}}.run()
}

func field(number protowire.Number) []byte {
	return protowire.AppendTag(nil, number, protowire.BytesType)
}

// describes appends encoded fields to the answer of Describe. The last value of a field
// applies.
func describes(fields []byte) {
	on("Lifecycle/Describe", func(c *call) ([]byte, error) {
		reply, err := c.pass()
		return append(reply, fields...), err
	})
}

func fickle() {
	var asked atomic.Int64
	on("Lifecycle/Describe", func(c *call) ([]byte, error) {
		reply, err := c.pass()
		text := strings.Repeat("again ", int(asked.Add(1)))
		return append(reply, protowire.AppendString(field(7), text)...), err
	})
}

func parrot(good string) string {
	version, _, _ := strings.Cut(os.Getenv("PLUGIN_PROTOCOL_VERSIONS"), ",")
	return strings.Replace(good, "1|1|", "1|"+version+"|", 1)
}

func strict() {
	if versions := os.Getenv("PLUGIN_PROTOCOL_VERSIONS"); versions != "1" {
		say(os.Stderr, "unknown protocol version "+versions+"\n")
		os.Exit(1)
	}
}

// dials resolves a back end during Describe. It sends no packet, because it uses UDP.
func dials(c *call) ([]byte, error) {
	if conn, err := net.Dial("udp", "192.0.2.1:4317"); err == nil {
		_ = conn.Close()
	}
	return c.pass()
}

// undeclared needs a variable that its Spec does not declare.
func undeclared() {
	s := spec(record)
	construct := s.Exporter
	s.Exporter = func(ctx context.Context, setup pluginsdk.Setup) (pluginsdk.Exporter, error) {
		if setup.Getenv("ACME_TOKEN") == "" {
			return nil, &pluginsdk.ConfigError{Path: "ACME_TOKEN", Err: errors.New("is empty: set it")}
		}
		return construct(ctx, setup)
	}
	pluginsdk.Main(s)
}

// forgetful accepts a second configuration.
func forgetful() {
	var configured atomic.Bool
	on("Lifecycle/Configure", func(c *call) ([]byte, error) {
		if configured.Swap(true) {
			return nil, nil
		}
		return c.pass()
	})
}

// rude returns no diagnostics for an invalid configuration.
func rude(c *call) ([]byte, error) {
	if bytes.Contains(c.request, []byte("{plugintest:")) {
		return nil, status.Error(invalidArgument, "yaml: did not find expected node content")
	}
	return c.pass()
}

// needy fails at a Configure without configuration.
func needy(c *call) ([]byte, error) {
	if len(c.request) == 0 {
		os.Exit(3)
	}
	return c.pass()
}

// eager accepts batches before it is configured.
func eager() {
	var configured atomic.Bool
	crooked{calls: func(c *call) ([]byte, error) {
		switch {
		case c.method == "Lifecycle/Configure":
			configured.Store(true)
		case c.method == exportMethod && !configured.Load():
			return nil, nil
		}
		return c.pass()
	}}.run()
}

// brittle exits at bytes that it cannot parse.
func brittle(c *call) ([]byte, error) {
	reply, err := c.pass()
	if status.Code(err) == invalidArgument {
		os.Exit(3)
	}
	return reply, err
}

// hopeful answers that bytes which it cannot parse may be retried.
func hopeful(c *call) ([]byte, error) {
	reply, err := c.pass()
	if status.Code(err) == invalidArgument {
		return nil, status.Error(unavailable, "try again")
	}
	return reply, err
}

// narrow accepts less than it declares.
func narrow(c *call) ([]byte, error) {
	if len(c.request) > 1<<20 {
		return nil, status.Error(resourceExhausted, "message larger than max")
	}
	return c.pass()
}

func emptyhanded(c *call) ([]byte, error) {
	if len(c.request) == 0 {
		return nil, status.Error(invalidArgument, "no spans")
	}
	return c.pass()
}

// formal requires a batch id in every call.
func formal(c *call) ([]byte, error) {
	if len(metadata.ValueFromIncomingContext(c.stream.Context(), "servetrace-batch-id")) == 0 {
		return nil, status.Error(invalidArgument, "no batch id")
	}
	return c.pass()
}

// oncer refuses a batch id that it has seen before.
func oncer() {
	var seen sync.Map
	on(exportMethod, func(c *call) ([]byte, error) {
		ids := metadata.ValueFromIncomingContext(c.stream.Context(), "servetrace-batch-id")
		if len(ids) > 0 {
			if _, twice := seen.LoadOrStore(ids[0], true); twice {
				return nil, status.Error(alreadyExists, "batch "+ids[0])
			}
		}
		return c.pass()
	})
}

// crowded declares no limit, but accepts only sixteen concurrent calls. Concurrent
// calls wait for the seventeenth, so that it arrives even on a slow machine.
func crowded() {
	var inside atomic.Int64
	full := make(chan struct{})
	var once sync.Once
	on(exportMethod, func(c *call) ([]byte, error) {
		defer inside.Add(-1)
		if inside.Add(1) > 16 {
			once.Do(func() { close(full) })
			return nil, status.Error(resourceExhausted, "too many calls")
		}
		pause(20 * time.Millisecond)
		if inside.Load() > 1 {
			select {
			case <-full:
			case <-c.stream.Context().Done():
			case <-time.After(3 * time.Second): // the earlier calls have ended
			}
		}
		return c.pass()
	})
}

// onProcess runs a processor plugin with another Process.
func onProcess(f func(*call) ([]byte, error)) {
	crooked{spec: scriptedProcessor(), calls: func(c *call) ([]byte, error) {
		if c.method != "Processor/Process" {
			return c.pass()
		}
		return f(c)
	}}.run()
}

// answers returns a Process with field num as the result that makes of the batch.
func answers(num protowire.Number, result func(batch []byte) []byte) func(*call) ([]byte, error) {
	return func(c *call) ([]byte, error) {
		if reply, err := c.pass(); err != nil {
			return reply, err
		}
		_, _, head := protowire.ConsumeTag(c.request)
		batch, _ := protowire.ConsumeBytes(c.request[max(0, head):])
		return protowire.AppendBytes(field(num), result(batch)), nil
	}
}

// multiplied returns the batch with a new span.
func multiplied(batch []byte) []byte {
	span := protowire.AppendBytes(field(2), []byte("another "))
	return append(slices.Clip(batch), protowire.AppendBytes(field(1), protowire.AppendBytes(field(2), protowire.AppendBytes(field(2), span)))...)
}

// boaster rejects more spans than the batch has.
func boaster(c *call) ([]byte, error) {
	rejected := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 100_000)
	_, err := c.pass()
	return protowire.AppendBytes(field(1), rejected), err
}

// miscount reports filtered spans without their number.
func miscount(c *call) ([]byte, error) {
	reply, err := c.pass()
	c.stream.SetTrailer(metadata.Pairs("servetrace-filtered", "sampler=some"))
	return reply, err
}

// inflator delivers all spans, and reports a delivered span as filtered.
func inflator(c *call) ([]byte, error) {
	reply, err := c.pass()
	if bytes.Contains(c.request, []byte("span-")) {
		c.stream.SetTrailer(metadata.Pairs("servetrace-filtered", "sampler=1"))
	}
	return reply, err
}

// conservative refuses unknown fields.
func conservative(c *call) ([]byte, error) {
	if bytes.Contains(c.request, []byte("from the future")) {
		return nil, status.Error(invalidArgument, "unknown field")
	}
	return c.pass()
}

func failing(*call) ([]byte, error) { return nil, status.Error(internal, "not now") }

// queue answers a batch before it has delivered it. It delivers it when the next batch
// arrives.
func queue() {
	var mu sync.Mutex
	var waiting []Batch
	exporter(func(_ context.Context, b *pluginsdk.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, line := range waiting {
			if err := appendRecord(line); err != nil {
				return err
			}
		}
		waiting = []Batch{lineOf(b)}
		return nil
	})
}

// stubborn does not return when a call is cancelled, for spans with a certain name.
func stubborn(ctx context.Context, b *pluginsdk.Batch) error {
	for span := range b.Spans() {
		if span.Name() == "stuck" {
			select {}
		}
	}
	return record(ctx, b)
}

// zombie accepts batches after Shutdown.
func zombie() {
	var shut atomic.Bool
	crooked{calls: func(c *call) ([]byte, error) {
		switch {
		case c.method == "Lifecycle/Shutdown":
			shut.Store(true)
		case c.method == exportMethod && shut.Load():
			return nil, nil
		}
		return c.pass()
	}}.run()
}

func litter() {
	must(os.WriteFile(filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "plugin.pid"), nil, 0o600))
}
