package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/internal/spelling"
)

// plugins checks the plugins of the list one after another.
func (d *doctor) plugins(ctx context.Context, all servetrace.Config) {
	cfg := all.Host
	cfg.Context.ServiceName, cfg.Context.SamplingRatio = all.Tracing.ServiceName(), all.Tracing.RootRatio()
	static := host.Inspect(ctx, cfg, false, d.options(new(bytes.Buffer))...)
	done := progress.Start(d.stderr, "start the plugins", cmp.Or(cfg.StartTimeout, host.DefaultStartTimeout)).End
	live := host.Inspect(ctx, cfg, true, d.options(new(bytes.Buffer))...)
	done()
	for i := range live {
		if ctx.Err() != nil || i >= len(static) || static[i].Name != live[i].Name { // if the lists differ, the plugins in a folder have changed between the two calls of Inspect
			return
		}
		p := &pluginCheck{d: d, cfg: cfg, static: static[i], live: live[i]}
		p.check(ctx)
	}
}

// pluginCheck checks one plugin.
type pluginCheck struct {
	d      *doctor
	cfg    host.Config
	static host.Inspection // result of Inspect without a start of the plugin
	live   host.Inspection // result of Inspect with a start of the plugin
	trial  trial           // set by the check of the configuration, for the later checks
}

// check runs the checks of a plugin in order, until one fails.
func (p *pluginCheck) check(ctx context.Context) {
	checks := []struct {
		name string
		run  func(context.Context) finding
	}{
		{"file", p.file}, {"handshake", p.handshake}, {"version", p.version}, {"variables", p.variables},
		{"configuration", p.configuration}, {"back end", p.backEnd}, {"span", p.span},
	}
	if p.live.Processor { // a processor has no back end, and gets no span
		checks = checks[:len(checks)-2]
	}
	for i, c := range checks {
		f := c.run(ctx)
		if ctx.Err() != nil {
			return
		}
		f.Plugin, f.Check = p.live.Name, c.name
		p.d.report.add(f)
		if f.Result != failed || i+1 == len(checks) {
			continue
		}
		var rest []string
		for _, other := range checks[i+1:] {
			rest = append(rest, other.name)
		}
		p.d.report.add(finding{Plugin: p.live.Name, Check: "rest", Result: skipped, Text: "not checked after an error: " + strings.Join(rest, ", ")})
		return
	}
}

// ofHandshake are the reasons of a failed start that the check of the handshake reports. The
// check of the version reports ReasonVersion, and the check of the file all other reasons.
var ofHandshake = []launch.Reason{
	launch.ReasonNotPlugin, launch.ReasonTimeout, launch.ReasonStopped, launch.ReasonNoListener, launch.ReasonPermission, launch.ReasonPeer,
}

// startError returns the error of the plugin's start. failing is false if the plugin has
// started.
func (p *pluginCheck) startError() (misfit *launch.Error, failing bool) {
	for _, err := range []error{p.static.Err, p.live.Err} {
		if misfit, ok := errors.AsType[*launch.Error](err); ok {
			return misfit, true
		}
	}
	return nil, false
}

// file reports whether the host has found the plugin's file and can run it.
func (p *pluginCheck) file(context.Context) finding {
	misfit, failing := p.startError()
	switch {
	case p.static.Path == "":
		err := hint(p.static)
		return finding{Result: failed, Text: err.Error(), Next: cmp.Or(p.nextOfMissing(), nextOfFile(err.Error()), p.nextOfFolder())}
	case failing && !slices.Contains(ofHandshake, misfit.Reason) && misfit.Reason != launch.ReasonVersion:
		return finding{Result: failed, Text: misfit.Error(), Next: p.nextOfBadFile(misfit)}
	}
	text := whereText(p.static)
	switch {
	case p.static.Pin != "":
		text += ", matches its pin"
	case !p.static.Attached:
		text += ", not pinned"
	}
	return finding{Result: passed, Text: text}
}

// nextOfBadFile returns the command for a plugin's file that cannot be used.
func (p *pluginCheck) nextOfBadFile(misfit *launch.Error) string {
	path := shellWord(p.static.Path)
	switch {
	case misfit.Reason == launch.ReasonUntrusted && p.static.Pin != "":
		return "servetrace plugin pin " + path
	case misfit.Reason == launch.ReasonNotFound:
		return cmp.Or(p.nextOfMissing(), "ls -l "+shellWord(filepath.Dir(p.static.Path)))
	case misfit.Reason == launch.ReasonArchitecture:
		return "file " + path
	}
	return cmp.Or(nextOfFile(misfit.Err.Error()), "head -c 100 "+path)
}

// nextOfFolder returns the command for a bare name that no plugin folder has. If a plugin
// folder has a subfolder "plugins" with this plugin, the command sets the subfolder as the
// plugin folder. Otherwise it lists the plugin folders.
func (p *pluginCheck) nextOfFolder() string {
	var words []string
	for _, dir := range p.cfg.PluginDirs {
		if below := filepath.Join(dir, "plugins"); isFile(filepath.Join(below, p.static.Where)) {
			return "export " + host.EnvPluginDir + "=" + shellWord(below)
		}
		words = append(words, shellWord(dir))
	}
	if len(words) == 0 {
		return "export " + host.EnvPluginDir + "=FOLDER # of the plugin"
	}
	return "ls -l " + strings.Join(words, " ")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// meantPlugin matches the name that the host's error about a bare name suggests.
var meantPlugin = regexp.MustCompile(`; did you mean (\S+)\? Else build it there`)

// nextOfMissing returns the command for a plugin that was not found. The command changes the
// list of plugins: the item gets the file of that name in the working folder, or a similar
// name. Without either, nextOfMissing returns "".
func (p *pluginCheck) nextOfMissing() string {
	where, variable, list := p.static.Where, host.EnvPlugins, p.cfg.Plugins
	switch {
	case p.static.Exporter != "":
		return "" // the list of one exporter's processors has another form
	case p.static.Processor:
		variable, list = host.EnvProcessors, p.cfg.Processors
	}
	other := "./" + where
	if strings.Contains(where, "/") {
		entries, _ := os.ReadDir(filepath.Dir(where)) // an error means that there is no similar name
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		near := spelling.Nearest(filepath.Base(where), names)
		if near == "" {
			return ""
		}
		other = strings.TrimSuffix(where, filepath.Base(where)) + near
	} else if _, err := os.Stat(where); err != nil {
		meant := meantPlugin.FindStringSubmatch(p.static.Err.Error())
		if meant == nil {
			return ""
		}
		other = meant[1]
	}
	items := parseItems(list)
	for i := range items {
		if items[i].isAt(where) {
			items[i].where = escape.Replace(other)
		}
	}
	return "export " + variable + "=" + shellWord(joinItems(items))
}

// handshake reports whether the plugin answers as go-plugin's protocol demands.
func (p *pluginCheck) handshake(context.Context) finding {
	if misfit, failing := p.startError(); failing && slices.Contains(ofHandshake, misfit.Reason) {
		return finding{Result: failed, Text: misfit.Error(), Next: p.info()}
	}
	return finding{Result: passed, Text: "answers"}
}

// info returns the command that starts the plugin and shows its description and log.
func (p *pluginCheck) info() string {
	where := p.static.Where
	if p.static.Folder != "" {
		where = p.static.Path
	}
	return "servetrace plugin info " + shellWord(where)
}

// version reports whether the plugin's description fits this host and the list.
func (p *pluginCheck) version(context.Context) finding {
	is := p.live
	switch {
	case is.Described && is.About.Processor != is.Processor:
		return finding{Result: failed, Text: is.Err.Error(), Next: cmp.Or(p.nextOfWrongList(), p.info())}
	case is.MaxConcurrency == 0, is.Err != nil && p.static.Err == nil: // the host could not ask for the description, or refuses it
		return finding{Result: failed, Text: is.Err.Error(), Next: cmp.Or(nextIn(is.Err.Error()), p.info())}
	case !is.Described:
		return finding{Result: passed, Text: "a plain OTLP receiver, without a description"}
	}
	return finding{Result: passed, Text: strings.TrimSpace(fmt.Sprintf("%s %s, SDK %s", is.About.Name, is.About.Version, is.About.SDK))}
}

// nextOfWrongList returns the command that moves the plugin's item from the list of exporters
// to the list of processors, or back. It returns "" if the list has no item for the plugin
// alone, because the item is its folder.
func (p *pluginCheck) nextOfWrongList() string {
	exporters, processors := parseItems(p.cfg.Plugins), parseItems(p.cfg.Processors)
	from, to := &exporters, &processors
	if p.static.Processor {
		from, to = to, from
	}
	at := slices.IndexFunc(*from, func(i pluginItem) bool { return i.isAt(p.static.Where) })
	if at < 0 {
		return ""
	}
	*to = append(*to, (*from)[at])
	*from = slices.Delete(*from, at, at+1)
	return fmt.Sprintf("export %s=%s %s=%s", host.EnvPlugins, shellWord(cmp.Or(joinItems(exporters), "console")), host.EnvProcessors, shellWord(joinItems(processors)))
}

// variables reports which declared variables the plugin gets.
func (p *pluginCheck) variables(context.Context) finding {
	var got, unset []string
	for _, v := range p.live.Variables {
		if !v.Base && !v.Default {
			got = append(got, v.Name)
		}
	}
	for _, pattern := range p.live.About.Patterns {
		if has := func(v host.Variable) bool { return v.Name == pattern }; !strings.HasSuffix(pattern, "*") &&
			!slices.ContainsFunc(p.live.Variables, has) && !slices.Contains(p.live.Withheld, pattern) {
			unset = append(unset, pattern)
		}
	}
	f := finding{Result: passed, Text: "gets " + cmp.Or(strings.Join(got, ", "), "none of this environment")}
	if len(unset) > 0 {
		f.Details = append(f.Details, "declared and not set: "+strings.Join(unset, ", "))
	}
	if len(p.live.Withheld) > 0 {
		f.Result = warned
		f.Details = append(f.Details, "lock-down withholds: "+strings.Join(p.live.Withheld, ", "))
		f.Next = nextIn("add " + p.live.Name + ":" + p.live.Withheld[0] + " to " + host.EnvPluginEnv)
	}
	return f
}

// configuration starts the plugin with its configuration, and sets p.trial.
func (p *pluginCheck) configuration(ctx context.Context) finding {
	p.trial = p.run(ctx)
	if err := p.trial.open; err != nil {
		next := nextIn(err.Error())
		if p.static.ConfigFile != "" && !strings.HasPrefix(next, "export "+host.EnvPluginEnv) {
			next = editor(p.static.ConfigFile, 0)
		}
		return finding{Result: failed, Text: strings.TrimPrefix(err.Error(), "configuration "), Next: cmp.Or(next, "servetrace plugin explain")}
	}
	f := finding{Result: passed, Text: "accepted, without a configuration file", Details: p.trial.remarks}
	switch {
	case p.live.Attached:
		f.Text = "not configured by this host, which did not start it"
	case p.static.ConfigFile != "":
		f.Text = "accepted, of " + p.static.ConfigFile
	}
	if len(p.trial.remarks) > 0 {
		f.Result = warned
	}
	return f
}

// span reports the plugin's answer to the marked span.
func (p *pluginCheck) span(context.Context) finding {
	v := p.trial
	code := func(err error) string { return v.answer.Code + ": " + err.Error() }
	filtered := slices.Sorted(maps.Keys(v.answer.Filtered))
	lost := finding{Result: failed, Next: cmp.Or(v.next(), "servetrace plugin run "+shellWord(p.static.Path))}
	switch {
	case v.ended != "":
		lost.Text = "the plugin ended while it exported: " + v.ended
	case v.answer.Err != nil && v.answer.Final:
		lost.Text = "rejected, " + code(v.answer.Err)
	case v.answer.Err != nil:
		lost.Text = "not delivered, a service would send it again, " + code(v.answer.Err)
	case v.answer.Rejected > 0:
		lost.Text = "rejected by the back end: " + v.answer.Remark
	case v.finish != nil:
		lost.Text = v.finish.Error()
	case len(filtered) > 0:
		return finding{Result: warned, Text: "dropped by processor " + strings.Join(filtered, ", ") + ", so the back end did not get it"}
	case v.answer.Remark != "":
		return finding{Result: warned, Text: "delivered, trace " + v.trace + "; the back end reports: " + v.answer.Remark}
	default:
		return finding{Result: passed, Text: fmt.Sprintf("delivered: span %q of trace %s", doctorSpan, v.trace)}
	}
	return lost
}

// finishTimeout bounds the flush and the shutdown of a plugin after the marked span.
const finishTimeout = 5 * time.Second

// doctorSpan is the name of the marked span, by which users find it in the back end.
const doctorSpan = "servetrace doctor"

// trial is the result of a run of a plugin with the marked span.
type trial struct {
	open    error       // error of the start or the configuration
	trace   string      // id of the marked span's trace
	answer  host.Answer // the plugin's answer to the marked span
	ended   string      // exit status of the plugin if it ended during the call; otherwise empty
	finish  error       // error of the flush or the shutdown
	remarks []string    // warnings and errors in the plugin's log
	address address     // the address in the plugin's log
}

// next returns the command for an error in the answer, or "" if it is not known.
func (v trial) next() string {
	if v.answer.Err == nil {
		return ""
	}
	return nextIn(v.answer.Err.Error())
}

// run starts and configures the plugin, sends it the marked span unless it is a
// processor, and ends it. It reads the plugin's log last, so that no line is missing.
func (p *pluginCheck) run(ctx context.Context) (v trial) {
	d, cfg, name := p.d, p.cfg, p.live.Name
	var log bytes.Buffer
	done := progress.Start(d.stderr, "configure plugin "+name, cmp.Or(cfg.StartTimeout, host.DefaultStartTimeout)).End
	session, err := host.OpenSession(ctx, cfg, name, d.options(&log)...)
	done()
	if err != nil {
		v.open = err
		return v
	}
	if p.live.Processor {
		v.finish = session.Stop()
		v.remarks, _ = readLog(log.Bytes())
		return v
	}
	span := builtInSpan(doctorSpan, cfg.Context.ServiceName, time.Now())
	v.trace = span.trace
	done = progress.Start(d.stderr, "send a span through plugin "+name, cmp.Or(cfg.ExportTimeout, host.DefaultExportTimeout)).End
	v.answer = session.Export(ctx, span.data)
	done()
	if exit, ended := session.Ended(ctx, v.answer); ended {
		v.ended = exit
	} else {
		ending, cancel := context.WithTimeout(ctx, finishTimeout)
		defer cancel()
		v.finish = session.Finish(ending)
	}
	v.finish = errors.Join(v.finish, session.Stop())
	v.remarks, v.address = readLog(log.Bytes())
	return v
}
