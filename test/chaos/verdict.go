package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/servetrace/servetrace/internal/total"
)

// maxMemory bounds hello's resident memory: the binary and its idle heap, and the
// growth that Go's collector allows over a full queue.
const maxMemory = 32<<20 + 4*queueBytes

// maxNewDescriptors is how many more descriptors may be open after the faults: the
// runtime opens some at their first use, such as a pidfd or epoll.
const maxNewDescriptors = 2

// errBroken is the error if a promise is broken. The details are printed.
var errBroken = errors.New("promises are broken, see above")

// judge prints the results and checks them.
func (s *stage) judge(faults []fault) error {
	var wrong []string
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	s.say("chaos: seed %d, %v, %d requests a second\n\n", s.opts.seed, s.opts.duration, s.opts.rate)
	s.judgeRequests(fail)
	s.judgeMemory(fail)
	s.sayFaults(faults)
	s.judgeMonitor(fail)
	s.judgeBooks(fail)
	s.judgeRemains(fail)
	if len(wrong) == 0 {
		s.say("\nPASS\n")
		return nil
	}
	s.say("\njournal of the faults:\n  %s\n", strings.Join(s.journal, "\n  "))
	const most = 40
	for i, text := range wrong {
		if i == most {
			s.say("FAIL: and %d more\n", len(wrong)-most)
			break
		}
		s.say("FAIL: %s\n", text)
	}
	return errBroken
}

func (s *stage) judgeRequests(fail func(string, ...any)) {
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "phase\trequests\twrong\tp50\tp99\tslowest")
	for _, p := range s.load.phases[1:] {
		fmt.Fprintf(table, "%s\t%d\t%d\t%v\t%v\t%v\n", p.name, p.sent, p.failed(),
			p.quantile(0.5).Round(10*time.Microsecond), p.quantile(0.99).Round(10*time.Microsecond), p.quantile(1).Round(10*time.Microsecond))
	}
	_ = table.Flush() // write errors are ignored
	for _, p := range s.load.phases {
		for text, n := range p.wrong {
			fail("%d requests of phase %q: %s", n, p.name, text)
		}
	}
}

func (s *stage) judgeMemory(fail func(string, ...any)) {
	s.say("\nmemory of hello: %d MiB after the calm, %d MiB after all, %d MiB at most; bound %d MiB\n",
		s.before.memory>>20, s.after.memory>>20, s.peak>>20, maxMemory>>20)
	if s.peak > maxMemory {
		fail("hello had %d MiB resident, the bound is %d MiB", s.peak>>20, maxMemory>>20)
	}
	s.say("descriptors of hello: %d after the calm, %d after all\n", len(s.before.descriptors), len(s.after.descriptors))
	if len(s.after.descriptors) > len(s.before.descriptors)+maxNewDescriptors {
		fail("hello has %d descriptors, before the faults it had %d: %v", len(s.after.descriptors), len(s.before.descriptors), s.after.descriptors)
	}
}

func (s *stage) sayFaults(faults []fault) {
	counts := map[string]int{}
	for _, f := range faults {
		counts[f.kind.name]++
	}
	s.say("%d faults:", len(faults))
	for i, name := range slices.Sorted(maps.Keys(counts)) {
		s.say("%s %s %d", strings.Repeat(",", min(i, 1)), name, counts[name])
	}
	s.say("\n\n")
}

// judgeMonitor prints and checks the observations while hello ran.
func (s *stage) judgeMonitor(fail func(string, ...any)) {
	m := s.monitor
	s.say("status: %d samples, at most %d KiB of spans held, bound %d KiB\n", m.samples, m.bytes>>10, m.last.Queue.LimitBytes>>10)
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, p := range m.last.Plugins {
		fmt.Fprintf(table, "%s\t%d starts\t%d crashes\t%s\n", p.Name, p.Starts, p.Crashes, m.seen(p.Name))
	}
	_ = table.Flush() // write errors are ignored
	for text, n := range m.wrong {
		fail("%d samples of the status: %s", n, text)
	}
	if len(m.last.Plugins) != len(s.plugins) {
		fail("the status has %d plugins, there are %d", len(m.last.Plugins), len(s.plugins))
	}
	reports, errReports := filepath.Glob(s.place.path(crashFolder, "*", "crash-*"))
	batches, errBatches := filepath.Glob(s.place.path(crashFolder, "*", "batch-*"))
	if err := errors.Join(errReports, errBatches); err != nil {
		fail("%v", err)
	}
	s.say("crash folder: %d reports, %d quarantined batches\n\n", len(reports), len(batches))
}

// acceptedBy returns the number of spans for the plugin. A plugin that is missing from
// its folder for a while gets none meanwhile.
func (s *stage) acceptedBy(name string) uint64 {
	for _, p := range s.monitor.last.Plugins {
		if p.Name == name {
			return p.Spans.Accepted
		}
	}
	return 0
}

// judgeBooks checks the delivery accounting against itself, the requests, and the
// plugins' output.
func (s *stage) judgeBooks(fail func(string, ...any)) {
	b, err := readAccounting(s.service.text())
	if err != nil {
		fail("%v", err)
		return
	}
	if want := uint64(spansPerRequest * s.load.sent()); b.spans != want {
		fail("hello counts %d spans, %d requests make %d", b.spans, s.load.sent(), want)
	}
	s.say("spans: %d, of which refused %v\n", b.spans, b.refused)
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "plugin\taccepted\tdelivered\trejected\tdropped\ton disk\tmore than once\tback after")
	for i, p := range s.plugins {
		l, ok := b.plugins[p.name]
		if !ok {
			fail("hello's last line has no counts of plugin %q", p.name)
			continue
		}
		accepted := s.acceptedBy(p.name)
		if sum := l.delivered + total.Of(l.rejected) + total.Of(l.filtered) + total.Of(l.dropped); sum != accepted {
			fail("plugin %q: %d spans accepted, %d accounted for: %+v", p.name, accepted, sum, l)
		}
		back := s.recovered[i].Round(time.Millisecond).String()
		if s.recovered[i] < 0 {
			back = "never"
			fail("plugin %q delivered nothing within %v after the faults", p.name, recoverTimeout)
		}
		for k, out := range p.outputs {
			once, twice := s.judgeOutput(p, out, l, accepted, fail)
			name := p.name
			if k > 0 {
				name += " (its other output)"
			}
			fmt.Fprintf(table, "%s\t%d\t%d\t%v\t%v\t%d\t%d\t%s\n", name, accepted, l.delivered, l.rejected, l.dropped, once, twice, back)
		}
	}
	_ = table.Flush() // write errors are ignored
}

// judgeOutput returns the numbers of distinct spans and of repeated spans in an output.
func (s *stage) judgeOutput(p *plugin, out output, l ledger, accepted uint64, fail func(string, ...any)) (once, twice int) {
	seen, err := out.read()
	if err != nil {
		fail("plugin %q: %v", p.name, err)
	}
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	if n := uint64(len(seen)); n < l.delivered || n > accepted {
		fail("plugin %q: %d different spans on disk, %d delivered, %d accepted", p.name, n, l.delivered, accepted)
	}
	if record, ok := out.(recorderFile); ok {
		for _, text := range record.repeats() {
			fail("plugin %q: %s", p.name, text)
		}
	}
	return len(seen), twice
}

// judgeRemains searches for leftovers of hello. It stops the attached plugin first.
func (s *stage) judgeRemains(fail func(string, ...any)) {
	s.keeper.end()
	s.keeper = nil
	// A killed process disappears a moment later.
	var pids []int
	for end := time.Now().Add(patience / 10); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		if pids = s.place.all(); len(pids) == 0 {
			break
		}
	}
	for _, pid := range pids {
		fail("process %d is left: %s", pid, commandOf(pid))
	}
	left, err := s.place.leftFiles(s.service.pid())
	if err != nil {
		fail("search for leftovers: %v", err)
	}
	for _, name := range left {
		fail("left behind: %s", name)
	}
}
