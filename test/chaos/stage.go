package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stage is the state of a run: its place, its programs, and its observations.
type stage struct {
	opts    options
	out     io.Writer
	place   place
	plugins []*plugin
	keeper  *keeper
	service *service
	monitor *monitor
	load    *load
	hogs    []*exec.Cmd // running hogs

	// before and after describe hello without load. peak is its maximum memory.
	before, after rest
	peak          int64
	// recovered is how long each plugin took to deliver after the faults; negative if
	// it did not.
	recovered []time.Duration

	mu      sync.Mutex
	begun   time.Time // start of the faults
	journal []string
	marks   int
}

// rest describes hello without load.
type rest struct {
	descriptors []string
	memory      int64
}

// plugin is a plugin of hello.
type plugin struct {
	// name is its name in the delivery accounting.
	name string
	// path is hello's executable of the plugin, good an intact copy.
	path, good string
	// attached reports that chaos runs the plugin, and hello attaches to socket.
	attached bool
	socket   string
	// weak reports that it is the recorder, which fails on request.
	weak bool
	// outputs are its destinations. Each gets every span.
	outputs []output
}

// restore restores the intact executable.
func (p *plugin) restore() error {
	good, err := os.ReadFile(p.good)
	if err != nil {
		return err
	}
	return replace(p.path, good, 0o755)
}

func newStage(o options, out io.Writer) (*stage, error) {
	if _, err := statusBytes(os.Getpid(), "VmHWM"); err != nil {
		return nil, fmt.Errorf("chaos needs Linux and its /proc: %w", err)
	}
	p, err := newPlace()
	if err != nil {
		return nil, err
	}
	s := &stage{opts: o, out: out, place: p}
	return s, nil
}

// open starts everything and waits until each plugin delivers.
func (s *stage) open() error {
	if err := s.install(); err != nil {
		return err
	}
	list, err := s.list()
	if err != nil {
		return err
	}
	attached := s.plugins[3]
	s.keeper = startKeeper(attached.path, attached.socket, s.place.environ())
	service, err := startService(s.place.path("hello"), s.place.environ(append(settings(),
		"SERVE_TRACING_EXPORTER_PLUGIN="+list,
		"SERVE_TRACING_PLUGIN_CONFIG="+s.documents(),
		"SERVE_TRACING_CRASH_DIR="+s.place.path(crashFolder),
		"SPAN_LINES_FILE="+s.place.path(outFolder, "lines"))...))
	if err != nil {
		return err
	}
	s.service = service
	s.load = newLoad(service.url, s.opts.rate)
	s.monitor = startMonitor(service.admin)
	for i, took := range s.recover() {
		if took < 0 {
			return fmt.Errorf("plugin %q delivers nothing within %v; hello's log:\n%s", s.plugins[i].name, recoverTimeout, service.text())
		}
	}
	return nil
}

// install copies the programs and defines the plugins.
func (s *stage) install() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var errs []error
	add := func(p plugin, from string) {
		p.good = s.place.path(goodFolder, filepath.Base(p.path))
		errs = append(errs, install(from, p.good), install(from, p.path))
		s.plugins = append(s.plugins, &p)
	}
	bin := func(name string) string { return filepath.Join(s.opts.bin, name) }
	out := func(name string) string { return s.place.path(outFolder, name) }
	add(plugin{
		name: "console", path: s.place.path(folderPlugins, "console"),
		outputs: []output{consoleFiles(out("console"))},
	}, bin("plugins/console"))
	add(plugin{
		name: "multi-backend-plugin", path: s.place.path(folderPlugins, "multi-backend-plugin"),
		outputs: []output{consoleFiles(out("multi")), lineFile(out("lines"))},
	}, bin("multi-backend-plugin"))
	recorderPath := s.place.path(pinnedPlugins, roleRecorder)
	add(plugin{name: roleRecorder, path: recorderPath, weak: true, outputs: []output{recorderFile(batchFile(recorderPath))}}, self)
	attachedPath := s.place.path(pinnedPlugins, roleAttached)
	add(plugin{
		name: roleAttached, path: attachedPath, attached: true, socket: s.place.path(roleAttached + ".sock"),
		outputs: []output{recorderFile(batchFile(attachedPath))},
	}, self)
	errs = append(errs, install(bin("hello"), s.place.path("hello")), install(self, s.place.path(roleHog)))
	return errors.Join(errs...)
}

// list returns the plugin list, with an entry of each form.
func (s *stage) list() (string, error) {
	recorder, err := os.ReadFile(s.plugins[2].good)
	if err != nil {
		return "", err
	}
	return strings.Join([]string{
		s.place.path(folderPlugins) + "/",
		fmt.Sprintf("%s@sha256:%x", s.plugins[2].path, sha256.Sum256(recorder)),
		"unix://" + s.plugins[3].socket,
	}, ","), nil
}

// documents writes the plugins' configurations and returns their paths. Each console
// exporter gets its own folder.
func (s *stage) documents() string {
	var entries []string
	for name, folder := range map[string]string{"console": "console", "multi-backend-plugin": "multi"} {
		file := s.place.path(name + ".yaml")
		text := fmt.Sprintf("exporter: {output: %q}\n", s.place.path(outFolder, folder))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			s.note("configuration of %s: %v", name, err) // the plugin will not start
		}
		entries = append(entries, name+"="+file)
	}
	return strings.Join(entries, ",")
}

// note adds a line to the journal.
func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := "        "
	if !s.begun.IsZero() {
		at = fmt.Sprintf("%8.3fs", time.Since(s.begun).Seconds())
	}
	line := at + " " + fmt.Sprintf(format, args...)
	s.journal = append(s.journal, line)
	if s.opts.verbose {
		s.say("%s\n", line)
	}
}

// say prints to the output. Write errors are ignored.
func (s *stage) say(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format, args...) }

// misbehave performs the faults at their times, and returns after span.
func (s *stage) misbehave(faults []fault, span time.Duration) {
	s.mu.Lock()
	s.begun = time.Now()
	s.mu.Unlock()
	over := time.After(span)
	for _, step := range steps(faults) {
		<-time.After(time.Until(s.begun.Add(step.at)))
		do, name := step.fault.kind.begin, step.fault.String()
		if step.end {
			do, name = step.fault.kind.end, "end of "+name
		}
		result, err := do(s, step.fault)
		if err != nil {
			result = strings.TrimSpace(result + " error: " + err.Error())
		}
		s.note("%s: %s", name, result)
	}
	<-over
}

// repair ends all lasting faults and reloads. Frozen processes stay frozen: hello must
// detect them.
func (s *stage) repair() {
	var errs []error
	for _, p := range s.plugins {
		if !p.attached {
			errs = append(errs, p.restore())
		}
		if err := os.Remove(crashFile(p.path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	_, _ = endHogs(s, fault{}) // never fails
	errs = append(errs, s.service.signal(syscall.SIGHUP))
	s.note("all is repaired, and SIGHUP: %v", errors.Join(errs...))
}

// Bounds of the recovery. A request is sent every few seconds, because its spans may
// become too old while a plugin waits for its next start, which takes 45 s at most.
const (
	recoverTimeout = 90 * time.Second
	recoverEvery   = 5 * time.Second
)

// recover sends requests until every plugin has delivered a request. It returns how
// long each took, or -1 if it did not.
func (s *stage) recover() []time.Duration {
	s.marks++
	mark := fmt.Sprintf("%s%d.", markPrefix, s.marks)
	begun := time.Now()
	took := slices.Repeat([]time.Duration{-1}, len(s.plugins))
	for sent := 0; time.Since(begun) < recoverTimeout && slices.Contains(took, -1); <-time.After(20 * time.Millisecond) {
		if time.Since(begun) >= time.Duration(sent)*recoverEvery {
			s.load.extra(fmt.Sprintf("%s%d", mark, sent))
			sent++
		}
		for i, p := range s.plugins {
			if took[i] < 0 && p.outputs[0].holds(mark) {
				took[i] = time.Since(begun)
			}
		}
	}
	return took
}

// quiet bounds how long hello may take to become idle without load.
const quiet = 15 * time.Second

// rest waits until hello is idle and describes it.
func (s *stage) rest() rest {
	var r rest
	for end := time.Now().Add(quiet); time.Now().Before(end); <-time.After(250 * time.Millisecond) {
		// Errors are detected elsewhere.
		r.descriptors, _ = descriptors(s.service.pid())
		r.memory, _ = statusBytes(s.service.pid(), "VmRSS")
		s.peak, _ = statusBytes(s.service.pid(), "VmHWM")
		if s.before.descriptors != nil && len(r.descriptors) <= len(s.before.descriptors) {
			break
		}
		if s.before.descriptors == nil && time.Until(end) < quiet-2*time.Second {
			break
		}
	}
	return r
}

// strike ends all processes, and removes the folder unless keep is set.
func (s *stage) strike(keep bool) error {
	if s.monitor != nil {
		s.monitor.end()
	}
	if s.keeper != nil {
		s.keeper.end()
	}
	if s.service != nil {
		_ = s.service.cmd.Process.Kill() // it has ended, or the run failed
		<-s.service.ended
	}
	if !keep {
		return s.place.end()
	}
	for _, pid := range s.place.all() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	s.say("kept: %s\n", s.place.dir)
	if s.service != nil {
		return os.WriteFile(s.place.path("hello.log"), []byte(s.service.text()), 0o600)
	}
	return nil
}
