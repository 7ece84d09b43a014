package suite

import (
	"context"
	"slices"
)

// gateSlack is how much a machine that does other things may move a ratio.
const gateSlack = 1.5

// Bound is what Check holds a claim to.
func (c Claim) Bound() float64 {
	if c.Gate != 0 {
		return c.Gate
	}
	return gateSlack * c.Target
}

// Held is a claim that Check has looked at.
type Held struct {
	Claim Claim
	// Best is the lowest value of Rounds rounds; none of them had one where Rounds
	// is zero.
	Best   float64
	Rounds int
}

// OK tells whether the best round was within the bound.
func (h Held) OK() bool { return h.Rounds > 0 && h.Best <= h.Claim.Bound() }

// Check holds the gated claims of the chosen cases to their bounds, for a gate
// of changes: a regression is over its bound in every round, and a machine that
// is busy for a moment is not. So a shape is run until each of its claims was
// within the bound once, at most so many rounds. A case that fails in a round is
// as a claim that is missed in it. The error is that of Run.
func Check(ctx context.Context, set Set, o Options, rounds int) ([]Held, error) {
	var held []Held
	for _, c := range set.Claims {
		if c.Gated {
			held = append(held, Held{Claim: c})
		}
	}
	o.Repeats = 1
	for range rounds {
		open := slices.DeleteFunc(slices.Clone(held), Held.OK)
		needed := func(c Case) bool {
			return slices.ContainsFunc(open, func(h Held) bool { return h.Claim.Suite == c.Suite && h.Claim.Shape == c.Shape })
		}
		cases := slices.DeleteFunc(slices.Clone(set.Cases), func(c Case) bool { return !needed(c) })
		if len(o.Select(cases)) == 0 {
			break
		}
		results, err := Run(ctx, Set{Cases: cases}, o)
		if err != nil {
			return nil, err
		}
		for i := range held {
			held[i].look(results)
		}
	}
	return held, nil
}

// look takes the value of a run of one round, if it has one.
func (h *Held) look(results *Results) {
	shape, ok := results.Shape(h.Claim.Suite, h.Claim.Shape)
	if !ok {
		return
	}
	for _, round := range shape.Rounds() {
		value, ok := h.Claim.Value(round)
		if !ok {
			continue
		}
		if h.Rounds == 0 || value < h.Best {
			h.Best = value
		}
		h.Rounds++
	}
}
