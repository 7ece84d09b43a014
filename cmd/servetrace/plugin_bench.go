package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/pluginsdk"
)

const pluginBenchLong = `Measure a plugin: spans per second, CPU per span of its process (on Linux), and the
latency of calls. It and a baseline get the same batches in turn. The baseline is:

  --baseline PATH, such as the build before a change
  the same plugin without its processors, if its configuration has some
  else a plugin that does nothing: the cost of the transport

An exporter sends to its back end, so use a back end for tests. The exit code is 1 if
a span was not accepted.`

const pluginBenchExample = `  servetrace plugin bench ./new --baseline ./old --spans spans.json --for 30s`

type benchFlags struct {
	spans, format, config, baseline string
	duration                        time.Duration
	calls                           int
	json                            bool
}

func newPluginBench(s settings) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:     "bench PATH",
		Short:   "Measure throughput, CPU and latency of a plugin",
		Long:    pluginBenchLong,
		Example: pluginBenchExample,
		Args:    oneArg("PATH"),
		RunE:    func(cmd *cobra.Command, list []string) error { return f.run(cmd, s, list[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spans, "spans", "", "`FILE` of spans (default: 512 made spans)")
	flags.StringVar(&f.format, "format", formatJSON, "form of the spans: `json|proto`")
	flags.StringVar(&f.config, "config", "", "`FILE` with the plugin's configuration")
	flags.StringVar(&f.baseline, "baseline", "", "`FILE` of another plugin to compare with")
	flags.DurationVar(&f.duration, "for", 10*time.Second, "`duration` of the measurement")
	flags.IntVar(&f.calls, "calls", 1, "`number` of calls at a time, at most 64")
	addJSON(cmd, &f.json)
	return cmd
}

// benchRounds is the number of turns of each plugin. The two plugins take turns, so that a
// disturbance of the machine affects both.
const benchRounds = 5

func (f benchFlags) run(cmd *cobra.Command, s settings, where string) error {
	switch {
	case f.duration < 100*time.Millisecond:
		return usagef("--for %v: want a duration of at least 100ms, such as 10s", f.duration)
	case f.calls < 1 || f.calls > 64:
		return usagef("--calls %d: want a number from 1 to 64", f.calls)
	}
	ctx := cmd.Context()
	requests := []request{benchBatch()}
	if f.spans != "" {
		var err error
		if requests, err = readSpans(ctx, "--spans", f.spans, f.format, cmd.InOrStdin()); err != nil {
			return err
		}
	}
	subjects, err := f.subjects(ctx, s, where)
	if err != nil {
		return err
	}
	unused, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unused.Close() }() // nothing is written to it
	report := progress.Start(cmd.ErrOrStderr(), "plugin bench", f.duration+benchWarm*2)
	err = measureAll(ctx, subjects, requests, f, report, unused)
	report.End()
	if err != nil {
		return err
	}
	if f.json {
		err = writeJSON(cmd.OutOrStdout(), []benchResult{subjects[0].result(), subjects[1].result()})
	} else {
		err = writeBench(cmd.OutOrStdout(), subjects[0].result(), subjects[1].result())
	}
	for _, x := range subjects {
		if x.failed != nil {
			err = errors.Join(err, fmt.Errorf("plugin %s: %s not accepted: %w", x.name, counted(x.lost, "span"), x.failed))
		}
	}
	return err
}

// subjects returns the plugin to measure and the baseline to compare it with.
func (f benchFlags) subjects(ctx context.Context, s settings, where string) ([]*benchSubject, error) {
	cfg, err := s.one(ctx, where, f.config)
	if err != nil {
		return nil, err
	}
	plugin := &benchSubject{name: where, cfg: cfg}
	if f.baseline != "" {
		cfg, err := s.one(ctx, f.baseline, f.config)
		return []*benchSubject{plugin, {name: f.baseline, cfg: cfg}}, err
	}
	if without, ok := withoutProcessors(cfg.PluginConfigs); ok {
		cfg.PluginConfigs = without
		return []*benchSubject{plugin, {name: "without processors", cfg: cfg}}, nil
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cfg, err = s.one(ctx, own, "")
	cfg.AllowWritable = true
	return []*benchSubject{plugin, {name: "does nothing", cfg: cfg}}, err
}

// withoutProcessors returns a copy of the configurations without the key processors. ok is
// false if no configuration has the key.
func withoutProcessors(configs map[string]host.PluginConfig) (without map[string]host.PluginConfig, ok bool) {
	without = maps.Clone(configs)
	for name, config := range configs {
		var document map[string]any
		if err := yaml.Unmarshal(config.Document, &document); err != nil || document["processors"] == nil {
			continue // it has no processors, or it is invalid or empty
		}
		delete(document, "processors")
		text, err := yaml.Marshal(document)
		if err != nil {
			continue
		}
		config.Document = text
		without[name], ok = config, true
	}
	return without, ok
}

// nothing runs this process as a plugin that accepts each batch without reading it. It is a
// baseline of plugin bench. It does not return.
func nothing() {
	pluginsdk.Main(pluginsdk.Spec{Name: "nothing", Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
	}})
}

// benchResult is the result of a plugin's measurement. CPU and CPUPerSpan are zero if the
// CPU time is not known.
type benchResult struct {
	Plugin         string        `json:"plugin"`
	Spans          int           `json:"spans"`
	SpansPerSecond float64       `json:"spans_per_second"`
	CPU            time.Duration `json:"cpu_ns"`
	CPUPerSpan     float64       `json:"cpu_ns_per_span"`
	P50            time.Duration `json:"latency_p50_ns"`
	P99            time.Duration `json:"latency_p99_ns"`
	Max            time.Duration `json:"latency_max_ns"`
}

// result returns the result of the measurement, which must have ended.
func (x *benchSubject) result() benchResult {
	slices.Sort(x.latencies)
	at := func(share float64) time.Duration {
		if len(x.latencies) == 0 {
			return 0
		}
		return x.latencies[int(share*float64(len(x.latencies)-1))]
	}
	r := benchResult{Plugin: x.name, Spans: x.spans, CPU: x.cpu, P50: at(0.5), P99: at(0.99), Max: at(1)}
	if x.spans > 0 {
		r.SpansPerSecond = float64(x.spans) / x.took.Seconds()
		r.CPUPerSpan = float64(x.cpu) / float64(x.spans)
	}
	return r
}

// writeBench writes both results and their ratios as a table.
func writeBench(w io.Writer, plugin, baseline benchResult) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tspans/s\tCPU per span\tlatency p50\tp99\tmax\t")
	cpu := func(ns float64) string {
		if ns == 0 {
			return "not known"
		}
		return fmt.Sprintf("%.0f ns", ns)
	}
	for _, r := range []benchResult{plugin, baseline} {
		fmt.Fprintf(table, "%s\t%.0f\t%s\t%v\t%v\t%v\t\n", strings.TrimSpace(r.Plugin), r.SpansPerSecond, cpu(r.CPUPerSpan),
			r.P50.Round(time.Microsecond), r.P99.Round(time.Microsecond), r.Max.Round(time.Microsecond))
	}
	ratio := func(a, b float64) string {
		if a == 0 || b == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f×", a/b)
	}
	fmt.Fprintf(table, "ratio\t%s\t%s\t%s\t%s\t%s\t\n", ratio(plugin.SpansPerSecond, baseline.SpansPerSecond), ratio(plugin.CPUPerSpan, baseline.CPUPerSpan),
		ratio(float64(plugin.P50), float64(baseline.P50)), ratio(float64(plugin.P99), float64(baseline.P99)), ratio(float64(plugin.Max), float64(baseline.Max)))
	return table.Flush()
}
