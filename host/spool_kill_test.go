package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// runSpooling is a program with a Host and a spool. Its arguments are the list of plugins,
// the folder and a prefix for the names of spans. It sends spans in all ways, and prints
// the prefix and the number of each group of spans that is safe, until it is killed.
func runSpooling() {
	h, err := host.New(host.Config{Plugins: os.Args[1], SpoolDir: os.Args[2], BatchAge: 5 * time.Millisecond},
		host.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil || h.Start(context.Background()) != nil {
		os.Exit(2)
	}
	var mu sync.Mutex
	safe := func(name string, spans int) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Println(name, spans); err != nil {
			os.Exit(2)
		}
	}
	send := func(kind string, accept func(request []byte) error) {
		for i := 0; ; i++ {
			name, spans := fmt.Sprintf("%s-%s-%d", os.Args[3], kind, i), 1+i%5
			request, err := encodeRequest(name, spans, i%3*200)
			if err != nil {
				os.Exit(2)
			}
			switch err := accept(request); {
			case err == nil:
				safe(name, spans)
			case !errors.Is(err, host.ErrFull):
				os.Exit(2)
			}
			<-time.After(time.Millisecond)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		send("consume", func(request []byte) error { _, err := h.Consume(request, "a"); return err })
	})
	all.Go(func() {
		send("deliver", func(request []byte) error { _, err := h.Deliver(context.Background(), request, "b"); return err })
	})
	all.Go(func() {
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
		for i := 0; ; i++ {
			name := fmt.Sprintf("%s-end-%d", os.Args[3], i)
			for k := range 3 {
				_, span := tracer.Start(context.Background(), fmt.Sprintf("%s-%d", name, k))
				span.End()
			}
			h.Seal()
			safe(name, 3)
			<-time.After(2 * time.Millisecond)
		}
	})
	all.Wait()
}

// killSpooling runs the program until a random moment, and returns the groups of spans
// that it has called safe.
func killSpooling(t *testing.T, plugins, dir, prefix string) (safe map[string]int) {
	t.Helper()
	cmd := exec.Command(installOwn(t, "spooling"), plugins, dir, prefix)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	log := &testplugin.Log{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	safe = map[string]int{}
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		name, spans, _ := strings.Cut(lines.Text(), " ")
		safe[name], err = strconv.Atoi(spans)
		if err != nil {
			break // the line was cut by the kill
		}
		if !killed {
			killed = true
			time.AfterFunc(rand.N(400*time.Millisecond), func() { _ = cmd.Process.Kill() }) // it does not end by itself
		}
	}
	if err := cmd.Wait(); !killed || cmd.ProcessState.Exited() {
		t.Fatalf("the program was to be killed: %v, log:\n%s", err, log)
	}
	return safe
}

// TestKill9OfTheHostWithASpool kills a host under load at random moments. Each span that
// was accepted arrives at each plugin, and only the batches in flight arrive twice, with
// the same id.
func TestKill9OfTheHostWithASpool(t *testing.T) {
	kills, dir := cyclesOf(t, 200), t.TempDir()
	paths := []string{testplugin.Install(t, "record"), testplugin.Install(t, "flaky:2"), testplugin.Install(t, "small:4")}
	safe := map[string]int{}
	for i := range kills {
		t.Logf("kill %d of %d", i, kills) // for make chaos
		for name, spans := range killSpooling(t, pluginList(paths), dir, fmt.Sprintf("run%d", i)) {
			safe[name] = spans
		}
	}
	r := startHost(t, func(c *host.Config) { c.SpoolDir, c.StopTimeout = dir, time.Minute }, paths...)
	r.waitReady(0) // the batches are on the queues before
	r.flush()
	for i, path := range paths {
		ids, got := map[string]map[string]bool{}, map[string]int{}
		for _, batch := range testplugin.Received(t, path) {
			for _, name := range batch.Spans {
				got[name]++
				if ids[name] == nil {
					ids[name] = map[string]bool{}
				}
				ids[name][batch.ID] = true
			}
		}
		missing, repeated := 0, map[string]bool{}
		for name, spans := range safe {
			for k := range spans {
				if got[fmt.Sprintf("%s-%d", name, k)] == 0 {
					missing++
				}
			}
		}
		for name, n := range got {
			if n == 1 {
				continue
			}
			for id := range ids[name] {
				repeated[id] = true
			}
			if len(ids[name]) > 1 && i != 2 { // the next process may cut a batch elsewhere
				t.Errorf("plugin %d: span %s has come in the batches %v", i, name, ids[name])
			}
		}
		if missing > 0 || len(repeated) > 8*kills {
			t.Errorf("plugin %d: %d spans of %d groups are missing, %d batches came twice by %d kills", i, missing, len(safe), len(repeated), kills)
		}
		t.Logf("plugin %d: %d groups, %d spans, %d batches twice", i, len(safe), len(got), len(repeated))
	}
	r.balanced()
}
