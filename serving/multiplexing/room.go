package multiplexing

// room limits the models in memory. The cache's mu guards it.
type room[M any] struct {
	max      int                    // not positive: no limit
	occupied map[*entry[M]]struct{} // entries that may occupy memory: from the start of load to the end of unload
	freed    chan struct{}          // closed and replaced when waiting loads must call tryAdd again
}

// tryAdd adds e to the models in memory, unless e must wait before it is loaded. If max
// entries are in memory, e waits for models that are unloading and for cancelled loads.
// It always waits for another entry with the same id. If all models are in use, e does
// not wait: one more model is loaded.
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

func (r *room[M]) remove(e *entry[M]) {
	delete(r.occupied, e)
	r.signal()
}

// signal wakes the loads that wait for a place in memory.
func (r *room[M]) signal() {
	close(r.freed)
	r.freed = make(chan struct{})
}
