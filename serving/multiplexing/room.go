package multiplexing

// room bounds the number of models in memory. The cache's mu guards it.
type room[M any] struct {
	max      int                    // largest number of models; zero or less means no limit
	occupied map[*entry[M]]struct{} // the models in memory, from the beginning of the load to the end of the unload
	freed    chan struct{}          // closed and replaced when waiting loads must call tryAdd again
}

// tryAdd adds e to the models in memory and returns true, unless the load of e must wait. It
// must wait while the same model is in memory from an earlier load. If max models are in
// memory, it must wait while a model is being unloaded or a cancelled load runs. If neither is
// the case, all models are in use, and e is loaded as one more model.
func (r *room[M]) tryAdd(e *entry[M]) bool {
	full := r.max > 0 && len(r.occupied) >= r.max
	for other := range r.occupied {
		if other.id == e.id || full && (other.state == unloading || other.unwanted) {
			return false
		}
	}
	r.occupied[e] = struct{}{}
	return true
}

// remove removes e from the models in memory, and wakes the loads that wait.
func (r *room[M]) remove(e *entry[M]) {
	delete(r.occupied, e)
	r.signal()
}

// signal wakes the loads that wait for a place in memory.
func (r *room[M]) signal() {
	close(r.freed)
	r.freed = make(chan struct{})
}
