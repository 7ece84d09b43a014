package host_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// withProcessors sets processors, each with its configuration, and returns the change of the
// settings. The processor of name x adds "+x" to the names of spans.
func withProcessors(t *testing.T, configs map[string]string, names ...string) func(*host.Config) {
	t.Helper()
	var list []string
	for _, name := range names {
		list = append(list, name+"="+strings.ReplaceAll(installOwn(t, "processor"), "=", "%3D"))
	}
	return func(c *host.Config) {
		c.Processors = strings.Join(list, ",")
		c.PluginConfigs = map[string]host.PluginConfig{}
		for _, name := range names {
			setConfig(c, name, configs[name])
		}
	}
}

// setConfig sets the configuration of a processor: its suffix, and more keys.
func setConfig(c *host.Config, name, more string) {
	document := fmt.Sprintf(`{"suffix": "+%s"`, name)
	if more != "" {
		document += ", " + more
	}
	c.PluginConfigs[name] = host.PluginConfig{Document: []byte(document + "}")}
}

// processor returns the statistics of a processor.
func (r *running) processor(name string) host.ProcessorStats {
	r.t.Helper()
	for _, p := range r.Stats().Processors {
		if p.Plugin.Name == name {
			return p
		}
	}
	r.t.Fatalf("no processor %q", name)
	return host.ProcessorStats{}
}

// wantProcessed compares the ledger of a processor.
func (r *running) wantProcessed(name string, want map[string]uint64) {
	r.t.Helper()
	r.balanced()
	p := r.processor(name)
	got := map[string]uint64{"passed": p.Passed, "waiting": p.Plugin.Waiting}
	for prefix, counts := range map[string]map[string]uint64{"bypassed ": p.Bypassed, "filtered ": p.Plugin.Filtered, "dropped ": p.Plugin.Dropped} {
		for key, n := range counts {
			got[prefix+key] = n
		}
	}
	maps.DeleteFunc(got, func(_ string, n uint64) bool { return n == 0 })
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("ledger of processor %s (-want +got):\n%s", name, diff)
	}
}

// TestProcessorsRunInOrder sends spans through three processors, which answer with a patch,
// with a whole batch and without changes, to two exporters.
func TestProcessorsRunInOrder(t *testing.T) {
	paths := []string{testplugin.Install(t, "record"), testplugin.Install(t, "small:30")}
	r := startHost(t, withProcessors(t, map[string]string{"b": `"answer": "whole"`, "c": `"answer": "unchanged"`}, "a", "b", "c"), paths...)
	r.spans("s", 1000)
	r.flush()
	for i, path := range paths {
		got := testplugin.Spans(t, path)
		for n := range 1000 {
			if name := fmt.Sprintf("s-%d+a+b", n); got[name] != 1 {
				t.Fatalf("exporter %d got span %s %d times, want once; %d names in all", i, name, got[name], len(got))
			}
		}
		r.wantCounts(i, map[string]uint64{"delivered": 1000})
	}
	for _, name := range []string{"a", "b", "c"} {
		r.wantProcessed(name, map[string]uint64{"passed": 1000})
	}
	var ids []string // in the order of arrival, which is not that of sealing
	for _, batch := range testplugin.Received(t, paths[0]) {
		_, number, _ := strings.Cut(batch.ID, "-")
		ids = append(ids, number)
	}
	if !slices.Contains(ids, "1") {
		t.Errorf("the batches have the numbers %q, want those of their sealing, from 1", ids)
	}
}

// TestProcessorsAnswers are the entries of a ledger for each kind of answer, for a processor
// that fails closed, and for one that fails open.
func TestProcessorsAnswers(t *testing.T) {
	for _, test := range []struct {
		prefix       string
		closed, open map[string]uint64
		exported     uint64 // with open
	}{
		{"drop", map[string]uint64{"filtered sampler": 10, "passed": 1}, map[string]uint64{"filtered sampler": 10, "passed": 1}, 1},
		{"lose", map[string]uint64{"filtered a": 10, "passed": 1}, map[string]uint64{"filtered a": 10, "passed": 1}, 1},
		{"refuse", map[string]uint64{"dropped rejected": 11}, map[string]uint64{"bypassed rejected": 11}, 11},
		{"garbage", map[string]uint64{"dropped rejected": 11}, map[string]uint64{"bypassed rejected": 11}, 11},
		{"double", map[string]uint64{"dropped rejected": 11}, map[string]uint64{"bypassed rejected": 11}, 11},
		{"beyond", map[string]uint64{"dropped rejected": 11}, map[string]uint64{"bypassed rejected": 11}, 11},
		{"spoil", map[string]uint64{"dropped rejected": 11}, map[string]uint64{"bypassed rejected": 11}, 11},
		{"poison", map[string]uint64{"dropped quarantined": 11}, map[string]uint64{"bypassed quarantined": 11}, 11},
	} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s open=%v", test.prefix, open), func(t *testing.T) {
				t.Parallel() // it waits for processes
				path := testplugin.Install(t, "record")
				processors := withProcessors(t, nil, "a")
				r := startHost(t, func(c *host.Config) {
					processors(c)
					c.BatchAge, c.ProcessorFailOpen = time.Minute, map[string]bool{"a": open}
				}, path)
				r.spans("s", 1)
				r.spans(test.prefix, 10)
				r.flush()
				want, exported := test.closed, test.closed["passed"]
				if open {
					want, exported = test.open, test.exported
				}
				r.wantProcessed("a", want)
				if x := r.Stats().Exporters[0]; x.Accepted != exported || x.Delivered != exported {
					t.Errorf("%d spans came to the exporter and %d were delivered, want %d", x.Accepted, x.Delivered, exported)
				}
				if want["dropped rejected"] > 0 { // the line comes a little after the counts
					testplugin.WaitFor(t, "a line about the refused batch", func() bool {
						return strings.Contains(r.log.String(), "processor refuses a batch, or its result cannot be used")
					})
				}
			})
		}
	}
}

// TestNothingIsExportedBeforeAProcessorIsReady: no span goes past a processor that starts
// slowly, nor past one that is the wrong kind of plugin.
func TestNothingIsExportedBeforeAProcessorIsReady(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, withProcessors(t, map[string]string{"b": `"late": "1s"`}, "a", "b"), path)
	r.spans("s", 100)
	r.flush()
	for name := range testplugin.Spans(t, path) {
		if !strings.HasSuffix(name, "+a+b") {
			t.Fatalf("span %q was exported", name)
		}
	}
	r.wantCounts(0, map[string]uint64{"delivered": 100})
}

func TestPluginsInTheWrongList(t *testing.T) {
	processor := installOwn(t, "processor")
	r := startHost(t, func(c *host.Config) {
		c.Plugins, c.Processors = "p0="+processor, "a="+testplugin.Install(t, "record")+",b="+testplugin.Install(t, "stock")
	})
	for _, want := range []string{
		"the plugin is incompatible: it is a processor in the list of exporters; name it in SERVE_TRACING_PROCESSOR_PLUGIN",
		"the plugin is incompatible: it is an exporter in a list of processors; name it in SERVE_TRACING_EXPORTER_PLUGIN",
	} {
		testplugin.WaitFor(t, want, func() bool { return strings.Contains(r.log.String(), want) })
	}
	testplugin.WaitFor(t, "three incompatible plugins", func() bool {
		s := r.Stats()
		return s.Exporters[0].State == host.StateIncompatible && s.Processors[0].Plugin.State == host.StateIncompatible && s.Processors[1].Plugin.State == host.StateIncompatible
	})
	r.spans("s", 10)
	testplugin.WaitFor(t, "the spans in the processor", func() bool { return r.processor("a").Plugin.Waiting == 10 })
	if got := r.Stats().Exporters[0].Accepted; got != 0 {
		t.Errorf("%d spans came to the exporter", got)
	}
}

// TestFrozenProcessor: spans wait for a processor that hangs and fails closed, and go on
// without one that fails open.
func TestFrozenProcessor(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("open=%v", open), func(t *testing.T) {
			t.Parallel() // it waits for processes
			path := testplugin.Install(t, "record")
			processors := withProcessors(t, nil, "a", "b")
			r := startHost(t, func(c *host.Config) {
				processors(c)
				c.ExportTimeout, c.ProcessorFailOpen = time.Second, map[string]bool{"": open}
			}, path)
			r.spans("before", 10)
			r.flush() // a processor that fails open may not be ready yet
			testplugin.WaitFor(t, "a ready processor", func() bool { return r.processor("b").Plugin.State == host.StateReady })
			testplugin.Freeze(t, r.processor("b").Plugin.PID)
			r.spans("s", 1000)
			r.flush()
			suffix := "+a+b"
			if open {
				suffix = "+a"
			}
			got := testplugin.Spans(t, path)
			for n := range 1000 {
				name := fmt.Sprintf("s-%d%s", n, suffix)
				processed := open && got[name+"+b"] == 1
				if got[name] != 1 && !processed {
					t.Fatalf("span %s was delivered %d times, want once", name, got[name])
				}
			}
			if b := r.processor("b"); open && b.Bypassed["timeout"] == 0 {
				t.Errorf("%v spans bypassed, want some by timeout", b.Bypassed)
			}
			r.wantCounts(0, map[string]uint64{"delivered": 1010})
		})
	}
}

// TestKilledProcessor kills the processors again and again under load.
func TestKilledProcessor(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) { withProcessors(t, nil, "a", "b")(c); c.BatchSpans = 50 }, path)
	for round := range 4 {
		name := string("ab"[round%2])
		testplugin.WaitFor(t, "a ready processor", func() bool { return r.processor(name).Plugin.State == host.StateReady })
		before := r.processor(name).Passed
		r.spans(fmt.Sprintf("r%d", round), 2000)
		testplugin.WaitFor(t, "a passed span", func() bool { return r.processor(name).Passed > before })
		testplugin.WaitFor(t, "a killed processor", func() bool {
			pid := r.processor(name).Plugin.PID // 0 for a moment if an end is noticed only now
			return pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
		})
	}
	r.flush()
	got := testplugin.Spans(t, path)
	for round := range 4 {
		for n := range 2000 {
			if name := fmt.Sprintf("r%d-%d+a+b", round, n); got[name] != 1 {
				t.Fatalf("span %s was delivered %d times, want once", name, got[name])
			}
		}
	}
	r.wantCounts(0, map[string]uint64{"delivered": 8000})
}

// TestProcessorsOfOneExporter are in front of this exporter alone, after the processors of
// all.
func TestProcessorsOfOneExporter(t *testing.T) {
	paths := []string{testplugin.Install(t, "record"), testplugin.Install(t, "record")}
	processors := withProcessors(t, nil, "a")
	r := startHost(t, func(c *host.Config) {
		processors(c)
		c.ExporterProcessors = map[string]string{"p1": "b=" + installOwn(t, "processor") + ",c=" + installOwn(t, "processor")}
		setConfig(c, "b", "")
		setConfig(c, "c", "")
	}, paths...)
	r.spans("s", 100)
	r.flush()
	for i, suffix := range []string{"+a", "+a+b+c"} {
		if got := testplugin.Spans(t, paths[i]); got["s-7"+suffix] != 1 || len(got) != 100 {
			t.Errorf("exporter %d got %d names, want 100 that end in %s", i, len(got), suffix)
		}
	}
	if got := r.processor("b"); got.Exporter != "p1" || got.Passed != 100 {
		t.Errorf("processor b is of exporter %q with %d spans, want p1 with 100", got.Exporter, got.Passed)
	}
}

// TestShutdownSendsThroughAllStages: spans in every stage are processed and delivered when
// the host shuts down.
func TestShutdownSendsThroughAllStages(t *testing.T) {
	path := testplugin.Install(t, "record")
	processors := withProcessors(t, map[string]string{"a": `"slow": "5ms"`, "b": `"slow": "5ms"`}, "a", "b")
	r := startHost(t, func(c *host.Config) { processors(c); c.BatchSpans, c.StopTimeout = 10, time.Minute }, path)
	r.spans("s", 1000)
	testplugin.WaitFor(t, "a delivery", func() bool { return r.Stats().Exporters[0].Delivered > 0 })
	r.spans("t", 1000)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	r.wantCounts(0, map[string]uint64{"delivered": 2000})
	if got := testplugin.Spans(t, path); got["t-999+a+b"] != 1 || len(got) != 2000 {
		t.Errorf("%d names were delivered, want 2000 that end in +a+b", len(got))
	}
}

// TestShutdownWithAFrozenProcessor: what waits for it is dropped, or goes on without it in
// time to be delivered.
func TestShutdownWithAFrozenProcessor(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("open=%v", open), func(t *testing.T) {
			t.Parallel() // it waits for processes
			processors := withProcessors(t, nil, "a")
			r := startHost(t, func(c *host.Config) {
				processors(c)
				c.StopTimeout, c.ProcessorFailOpen = 4*time.Second, map[string]bool{"a": open}
			}, testplugin.Install(t, "record"))
			r.spans("s", 10)
			r.flush()
			testplugin.Freeze(t, r.processor("a").Plugin.PID)
			r.spans("t", 100)
			err := r.Shutdown(t.Context())
			if open {
				r.wantProcessed("a", map[string]uint64{"passed": 10, "bypassed shutdown": 100})
				r.wantCounts(0, map[string]uint64{"delivered": 110})
				return
			}
			if err == nil || !strings.Contains(err.Error(), `plugin "a": 100 spans not delivered`) {
				t.Errorf("Shutdown = %v, want the spans that wait for the processor", err)
			}
			r.wantProcessed("a", map[string]uint64{"passed": 10, "dropped shutdown": 100})
			r.wantCounts(0, map[string]uint64{"delivered": 10})
		})
	}
}

// TestReloadChangesProcessors adds, replaces and removes processors of a folder under load.
// No span gets past a processor that is on the list before and after.
func TestReloadChangesProcessors(t *testing.T) {
	folder := t.TempDir()
	link := func(name string) {
		t.Helper()
		script := "#!/bin/sh\nexec " + installOwn(t, "processor") + "\n"                         // the name of the link is the program
		if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	link("50-redact")
	sink := installOwn(t, "bytes")
	r := startHost(t, func(c *host.Config) {
		c.Plugins, c.Processors, c.BatchSpans, c.StopTimeout = "p0="+sink, folder+"/", 20, 20*time.Second
	})
	steps := []func(){
		func() { link("10-first") },
		func() { // another executable with the same name
			if err := os.Remove(filepath.Join(folder, "50-redact")); err != nil {
				t.Fatal(err)
			}
			link("50-redact.v2")
		},
		func() {
			if err := os.Remove(filepath.Join(folder, "10-first")); err != nil {
				t.Fatal(err)
			}
		},
		func() { link("90-last") },
	}
	total := 0
	for _, step := range steps {
		stop := make(chan struct{})
		done := make(chan int)
		go func() { done <- r.secretSpans(stop) }()
		step()
		if err := r.Reload(t.Context()); err != nil {
			t.Errorf("Reload: %v", err)
		}
		close(stop)
		total += <-done
		r.balanced()
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": uint64(total)})
	data, err := os.ReadFile(sink + ".bytes")
	if err != nil || bytes.Contains(data, []byte(canary)) {
		t.Errorf("%v, or a span was exported unprocessed (%d bytes)", err, len(data))
	}
	if got := r.processor("50-redact").Passed; got != uint64(total) {
		t.Errorf("the ledger of the replaced processor has %d spans, want %d", got, total)
	}
}

// secretSpans ends spans with the attribute canary until stop is closed, and returns their
// number.
func (r *running) secretSpans(stop <-chan struct{}) (n int) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return n
		case <-ticker.C:
			for range 5 {
				_, span := r.tracer.Start(context.Background(), "s", trace.WithAttributes(attribute.String(canary, "secret")))
				span.End()
				n++
			}
		}
	}
}
