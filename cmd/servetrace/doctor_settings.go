package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/servicefile"
	"github.com/servetrace/servetrace/tracing"
)

// settings reports the settings and their origins. It returns false if a service would not
// start with them.
func (d *doctor) settings() (servetrace.Config, bool) {
	const name = "settings"
	is, err := check(d.s, d.path, d.environ)
	if err != nil {
		d.report.add(finding{Check: name, Result: failed, Text: err.Error(), Next: "ls -l " + shellWord(d.path)})
		return servetrace.Config{}, false
	}
	if len(is.Faults) > 0 {
		f := finding{Check: name, Result: failed, Text: is.verdict().Error(), Next: nextOfFault(is.Faults[0], d.path)}
		for _, fault := range is.Faults {
			f.Details = append(f.Details, strings.Split(fault.whole, "\n")...)
		}
		d.report.add(f)
		return servetrace.Config{}, false
	}
	f := finding{Check: name, Result: passed}
	for _, s := range is.Settings {
		if s.From != servicefile.FromDefault {
			f.Details = append(f.Details, fmt.Sprintf("%s = %s (%s)", s.Key, s.Value, s.From))
		}
	}
	f.Text = fmt.Sprintf("valid, %d of %d set", len(f.Details), len(is.Settings))
	d.report.add(f)
	d.warnings(is)
	d.ratio = originOf(is.Settings, "tracing_config.sampling_ratio")
	return is.cfg, true
}

// warnings reports the warnings of a check. A variable SERVE_… that is probably misspelt is an
// error, because the intended variable has no value.
func (d *doctor) warnings(is checked) {
	for _, v := range is.unread {
		if len(v.Instead) == 0 || !strings.HasPrefix(v.Name, "SERVE_") {
			continue
		}
		is.Warnings = slices.DeleteFunc(is.Warnings, func(text string) bool { return strings.HasPrefix(text, v.Name+": ") })
		next := "unset " + v.Name
		if d.s.getenv(v.Instead[0]) == "" {
			next = fmt.Sprintf(`export %s="$%s"; %s`, v.Instead[0], v.Name, next)
		}
		d.report.add(finding{
			Check: "settings", Result: failed, Next: next,
			Text: fmt.Sprintf("%s has no effect; did you mean %s?", v.Name, strings.Join(v.Instead, " or ")),
		})
	}
	for _, text := range is.Warnings {
		d.report.add(finding{Check: "settings", Result: warned, Text: text})
	}
}

// list reports the names of the plugins. It returns false if there are none.
func (d *doctor) list(ctx context.Context, cfg servetrace.Config) bool {
	const name = "list"
	list := host.Inspect(ctx, cfg.Host, false, d.options(io.Discard)...)
	switch {
	case len(list) > 0 && list[0].Name == "":
		d.report.add(finding{Check: name, Result: failed, Text: list[0].Err.Error(), Next: nextOfFault(fault{Text: list[0].Err.Error()}, "")})
		return false
	case len(list) == 0 && d.remote && cfg.Host.Plugins == "":
		d.report.add(finding{Check: name, Result: skipped, Text: "this environment names no plugins"})
		return false
	case len(list) == 0:
		d.report.add(finding{Check: name, Result: failed, Text: d.s.off(""), Next: d.nextOfOff(cfg)})
		return false
	}
	var names []string
	for _, is := range list {
		names = append(names, is.Name)
	}
	d.report.add(finding{Check: name, Result: passed, Text: fmt.Sprintf("%s: %s", counted(len(list), "plugin"), strings.Join(names, ", "))})
	return true
}

// nextOfOff returns the command for an empty list of plugins.
func (d *doctor) nextOfOff(cfg servetrace.Config) string {
	by, _, _ := strings.Cut(cfg.Tracing.DisabledBy, "=")
	switch {
	case by != "":
		return "unset " + by
	case cfg.Host.Plugins != "": // the list names folders, and no folder has a plugin
		return "ls -l " + shellWord(cfg.Host.Plugins)
	case d.path != "":
		return editor(d.path, 0)
	}
	return "export " + host.EnvPlugins + "=console"
}

// rareRatio is the largest sampling ratio that causes a warning, because a test of few
// requests may have no sampled trace.
const rareRatio = 0.1

// sampling reports the sampling ratio.
func (d *doctor) sampling(cfg servetrace.Config) {
	ratio := cfg.Tracing.RootRatio()
	f := finding{
		Check: "sampling", Result: passed, Next: "export " + tracing.EnvSamplingRatio + "=1",
		Text: fmt.Sprintf("%v of root traces (%s)", ratio, d.ratio),
	}
	switch {
	case ratio == 0:
		f.Result, f.Text = failed, fmt.Sprintf("no root trace is sampled (%s); a relay does not read this setting", d.ratio)
	case ratio <= rareRatio:
		f.Result, f.Text = warned, f.Text+": a test of few requests may show no span"
	default:
		f.Next = ""
	}
	d.report.add(f)
}

// originOf returns the setting with this key as "KEY = VALUE, ORIGIN".
func originOf(list []servicefile.Setting, key string) string {
	for _, s := range list {
		if s.Key == key {
			return fmt.Sprintf("%s = %s, %s", s.Key, s.Value, s.From)
		}
	}
	return key
}
