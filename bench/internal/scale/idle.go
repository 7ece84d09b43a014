package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/spanpath"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

const (
	shapeIdle = "idle"
	// idleSettle is how long processes may end what they have begun.
	idleSettle = 3 * time.Second
	// idleWindow has one of the health checks in it that the host makes each ten
	// seconds.
	idleWindow = 10 * time.Second
)

// idleCase has all processes in one window: idle ones do not disturb each other,
// and one after another they would take a minute.
func idleCase() suite.Case {
	return suite.Case{
		Suite: Name, Shape: shapeIdle, Row: "side by side", Repeats: 1,
		Doc: "processes that have delivered one span, or answered one request, and have nothing to do since, for 10 s: a Go program with the SDK alone, " +
			"one with BSP + otlptracehttp, one with our host and its plugin, examples/hello with tracing off, and with plugins/otlp",
		Run: measureIdle,
	}
}

// idler is a process that is looked at.
type idler struct {
	name     string
	pid      int
	cpu      time.Duration
	switches uint64
}

func (i *idler) read() (err error) {
	var err1, err2 error
	i.cpu, err1 = measure.ProcessCPU(i.pid)
	i.switches, err2 = measure.ContextSwitches(i.pid)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%s: %w", i.name, err)
	}
	return nil
}

func measureIdle(ctx context.Context, env *suite.Env) (sample suite.Sample, err error) {
	var idlers []idler
	for _, p := range []struct{ row, name, plugin string }{
		{spanpath.RowFloor, "SDK alone", ""}, {spanpath.RowBSPHTTP, "BSP", ""}, {spanpath.RowOurs, "host", "plugin"},
	} {
		r, m, err := startChild(ctx, env, p.row)
		if err != nil {
			return nil, err
		}
		defer func() { _ = r.end() }() // what it has to say of its end is not what is asked
		idlers = append(idlers, idler{name: p.name, pid: r.cmd.Process.Pid})
		for _, pid := range m.Plugins {
			idlers = append(idlers, idler{name: p.plugin, pid: pid})
		}
	}
	for _, traced := range []bool{false, true} {
		r, url, err := startHello(ctx, env, traced)
		if err != nil {
			return nil, err
		}
		defer func() { _ = r.end() }()
		if err := get(ctx, url); err != nil {
			return nil, err
		}
		if !traced {
			idlers = append(idlers, idler{name: "hello, off", pid: r.cmd.Process.Pid})
			continue
		}
		idlers = append(idlers, idler{name: "hello", pid: r.cmd.Process.Pid})
		for _, pid := range children(r.cmd.Process.Pid) {
			idlers = append(idlers, idler{name: "plugin of hello", pid: pid})
		}
	}
	return watchIdle(ctx, idlers)
}

func watchIdle(ctx context.Context, idlers []idler) (suite.Sample, error) {
	if err := pause(ctx, idleSettle); err != nil {
		return nil, err
	}
	for i := range idlers {
		if err := idlers[i].read(); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, idleWindow); err != nil {
		return nil, err
	}
	s := suite.Sample{}
	for _, before := range idlers {
		after := before
		if err := after.read(); err != nil {
			return nil, err
		}
		s[suite.Of(suite.IdleCPU, before.name)] = float64((after.cpu - before.cpu).Microseconds()) / idleWindow.Seconds()
		s[suite.Of(suite.Wakeups, before.name)] = float64(after.switches-before.switches) / idleWindow.Seconds()
		if rss, err := measure.RSS(before.pid); err == nil {
			s[suite.Of(suite.RSS, before.name)] = float64(rss) / (1 << 20)
		}
	}
	return s, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// children are the processes whose parent a process is.
func children(pid int) (ids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// "PID (NAME) STATE PARENT ...", where the name may have brackets in it.
		line := string(text)
		words := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
		if len(words) < 2 || words[1] != strconv.Itoa(pid) {
			continue
		}
		if id, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
