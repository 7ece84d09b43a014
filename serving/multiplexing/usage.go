package multiplexing

import (
	"cmp"
	"slices"

	"github.com/servetrace/servetrace/serving/internal/scope"
)

// usage records the calls that use the models of a cache. The cache's mu guards it.
type usage[M any] struct {
	byCall map[*scope.Call]*use[M]
	clock  uint64 // incremented by each use
}

type use[M any] struct {
	entries []*entry[M]
	hooked  bool // release is registered with the call's OnEnd
}

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

// remove removes the uses of a call. The models of the call become the most recently
// used ones, in the order in which the call used them.
func (u *usage[M]) remove(call *scope.Call) {
	entries := u.byCall[call].entries
	delete(u.byCall, call)
	slices.SortFunc(entries, func(a, b *entry[M]) int { return cmp.Compare(a.used, b.used) })
	for _, e := range entries {
		e.users--
		u.touch(e)
	}
}
