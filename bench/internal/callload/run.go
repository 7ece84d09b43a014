package callload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// run measures rows once, in turns.
func (s scene) run(ctx context.Context, names []string) (suite.Round, error) {
	var all []*contender
	var err error
	for _, name := range names {
		c := &contender{name: name, row: rows[name]}
		all = append(all, c)
		if err = c.start(ctx, s); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			break
		}
	}
	for range s.n {
		for _, c := range all {
			if err != nil {
				break
			}
			if err = c.turn(s.length); err != nil {
				err = fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	round := suite.Round{}
	for _, c := range all {
		round[c.name] = c.sample()
		err = errors.Join(err, c.stop())
	}
	return round, err
}

// contender is a row in progress.
type contender struct {
	name string
	row  row

	callees, callers *child.Child // callees are nil for calls in one process
	used             usage        // in all turns
	made             made         // in all turns
}

// usage is the usage of both processes.
type usage struct {
	cpu     time.Duration
	objects float64
}

// start starts the processes, and warms them up.
func (c *contender) start(ctx context.Context, s scene) error {
	var addrs []string
	if c.row.callees > 0 {
		var err error
		if c.callees, err = child.Start(ctx, nil, roleCallees, c.row.by, strconv.Itoa(c.row.callees)); err != nil {
			return err
		}
		if err := c.callees.Read(&addrs); err != nil {
			return err
		}
	}
	var err error
	if c.callers, err = child.Start(ctx, nil, roleCallers, c.row.by, strconv.Itoa(s.callers), strings.Join(addrs, ",")); err != nil {
		return err
	}
	return c.callers.Ask(order{Length: s.warmUp, WarmUp: true}, new(made))
}

// turn runs a turn. The usage between turns does not count: 64 idle servers cost something,
// too.
func (c *contender) turn(length time.Duration) error {
	from, err := c.usage()
	if err != nil {
		return err
	}
	if err := c.callers.Ask(order{Length: length}, &c.made); err != nil {
		return err
	}
	to, err := c.usage()
	c.used.cpu += to.cpu - from.cpu
	c.used.objects += to.objects - from.objects
	return err
}

// usage returns the usage of both processes since their start.
func (c *contender) usage() (u usage, err error) {
	for _, p := range []*child.Child{c.callees, c.callers} {
		if p == nil {
			continue
		}
		var m made
		if err := p.Ask(order{}, &m); err != nil {
			return u, err
		}
		cpu, err := measure.ProcessCPU(p.PID)
		if err != nil {
			return u, err
		}
		u.cpu += cpu
		u.objects += m.Objects
	}
	return u, nil
}

// sample divides the usage by the calls.
func (c *contender) sample() suite.Sample {
	n := float64(c.made.Calls)
	return suite.Sample{
		calls:  n / c.made.Took.Seconds(),
		cpu:    float64(c.used.cpu) / n,
		allocs: c.used.objects / n,
		p50:    milliseconds(c.made.P50),
		p99:    milliseconds(c.made.P99),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// stop stops the processes, the callers first.
func (c *contender) stop() (err error) {
	for _, p := range []*child.Child{c.callers, c.callees} {
		if p != nil {
			err = errors.Join(err, p.Stop(nil))
		}
	}
	return err
}
