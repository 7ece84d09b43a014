package multiplexing

import (
	"cmp"
	"slices"

	"github.com/servetrace/servetrace/serving/internal/scope"
)

// usage records the models that each call uses, and the order in which models were used. The
// cache's mu guards it.
type usage[M any] struct {
	byCall map[*scope.Call]*use[M] // the calls that use a model
	clock  uint64                  // number of times that a use has begun or ended
}

// use has the models that a call uses.
type use[M any] struct {
	entries []*entry[M] // each once
	hooked  bool        // cache.release is registered with the call's OnEnd
}

// add records that call uses the model e. It returns the models that call uses.
func (u *usage[M]) add(e *entry[M], call *scope.Call) *use[M] {
	u.touch(e)
	of := u.byCall[call]
	if of == nil {
		of = new(use[M])
		u.byCall[call] = of
	}
	if !slices.Contains(of.entries, e) {
		of.entries = append(of.entries, e)
		e.users++
	}
	return of
}

// touch marks e as the most recently used model.
func (u *usage[M]) touch(e *entry[M]) {
	u.clock++
	e.used = u.clock
}

// remove records that a call uses no models any more. These models then count as the most
// recently used models, in the order in which the call used them.
func (u *usage[M]) remove(call *scope.Call) {
	entries := u.byCall[call].entries
	delete(u.byCall, call)
	slices.SortFunc(entries, func(a, b *entry[M]) int { return cmp.Compare(a.used, b.used) })
	for _, e := range entries {
		e.users--
		u.touch(e)
	}
}
