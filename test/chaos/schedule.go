package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is a scheduled fault.
type fault struct {
	kind *kind
	// at is the start time since the beginning of the faults. lasts is the duration,
	// zero if there is nothing to end.
	at, lasts time.Duration
	// plugin is an index, or -1 for the service or the machine.
	plugin int
	// pick is a random number for choices of the kind.
	pick uint64
}

// String returns the fault's text in the journal.
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

// Bounds of the pauses between faults, and of their durations.
const (
	minPause, maxPause = 200 * time.Millisecond, 1200 * time.Millisecond
	minLast, maxLast   = 500 * time.Millisecond, 5 * time.Second
)

// schedule returns random faults for a time span. Every kind occurs once, in random
// order, before a kind is repeated.
func schedule(seed uint64, span time.Duration, plugins []*plugin) []fault {
	draw := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // must be reproducible
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(draw.Int64N(int64(most-least)))
	}
	var list []fault
	var deck []int
	for at := between(0, minPause); at < span; at += between(minPause, maxPause) {
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
		if lasts := between(minLast, maxLast); f.kind.end != nil {
			f.lasts = min(lasts, span-at)
		}
		list = append(list, f)
	}
	return list
}

// step is the start or the end of a fault.
type step struct {
	at    time.Duration
	fault fault
	end   bool
}

// steps sorts the starts and ends of faults by time.
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
