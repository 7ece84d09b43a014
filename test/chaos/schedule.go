package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one thing that is done.
type fault struct {
	kind *kind
	// at is when, since the faults began; lasts is how long until it is undone,
	// zero where there is nothing to undo.
	at, lasts time.Duration
	// plugin is an index, or -1 for what is done to the service or the machine.
	plugin int
	// pick is a number drawn for the kind's own choices.
	pick uint64
}

// String is the fault as the journal has it.
func (f fault) String() string {
	text := f.kind.name
	if f.plugin >= 0 {
		text += fmt.Sprintf(" of plugin %d", f.plugin)
	}
	if f.lasts > 0 {
		text += fmt.Sprintf(" for %v", f.lasts.Round(time.Millisecond))
	}
	return text
}

// Pauses between two faults, and how long those that last do.
const (
	leastPause, mostPause = 200 * time.Millisecond, 1200 * time.Millisecond
	leastLast, mostLast   = 500 * time.Millisecond, 5 * time.Second
)

// schedule draws the faults of a time span. Every kind comes once, in an order
// that is drawn too, before one comes again.
func schedule(seed uint64, span time.Duration, plugins []*plugin) []fault {
	draw := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // to be the same again is its use
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(draw.Int64N(int64(most-least)))
	}
	var list []fault
	var deck []int
	for at := between(0, leastPause); at < span; at += between(leastPause, mostPause) {
		if len(deck) == 0 {
			deck = draw.Perm(len(kinds))
		}
		f := fault{kind: &kinds[deck[0]], at: at, plugin: -1, pick: draw.Uint64()}
		deck = deck[1:]
		var fitting []int
		for i, p := range plugins {
			if f.kind.fits != nil && f.kind.fits(p) {
				fitting = append(fitting, i)
			}
		}
		if len(fitting) > 0 {
			f.plugin = fitting[draw.IntN(len(fitting))]
		}
		if lasts := between(leastLast, mostLast); f.kind.end != nil {
			f.lasts = min(lasts, span-at)
		}
		list = append(list, f)
	}
	return list
}

// step is the beginning or the end of a fault.
type step struct {
	at    time.Duration
	fault fault
	end   bool
}

// steps puts beginnings and ends into the order of time.
func steps(faults []fault) []step {
	var list []step
	for _, f := range faults {
		list = append(list, step{at: f.at, fault: f})
		if f.lasts > 0 {
			list = append(list, step{at: f.at + f.lasts, fault: f, end: true})
		}
	}
	slices.SortStableFunc(list, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return list
}
