package router

import "slices"

// member is a destination of a router's requests: a replica in this process, or another
// process with replicas. The router's mu guards it.
type member struct {
	replica *Replica      // nil if the member is a process
	peer    Peer          // nil if the member is a replica
	ongoing int           // number of requests that the member runs
	limit   int           // largest number of requests that it may run at a time
	at      int           // index in the pool of free members; -1 if it is not in the pool
	idle    chan struct{} // nil until the member is removed; closed when it then runs no request
	models  []string      // ids of the models that the member has announced; the slice is replaced as a whole
	sent    []sent        // models of the running requests

	trust // used only if the member is a process
}

// sent is the number of running requests for a model.
type sent struct {
	model   string
	ongoing int
}

// take counts a new request for model, which may be "".
func (m *member) take(model string) {
	m.ongoing++
	if model == "" {
		return
	}
	if i := m.indexOf(model); i >= 0 {
		m.sent[i].ongoing++
		return
	}
	m.sent = append(m.sent, sent{model: model, ongoing: 1})
}

// release counts the end of a request for model.
func (m *member) release(model string) {
	m.ongoing--
	if model == "" {
		return
	}
	i := m.indexOf(model)
	if m.sent[i].ongoing--; m.sent[i].ongoing == 0 {
		m.sent = slices.Delete(m.sent, i, i+1)
	}
}

// indexOf returns the index of a model in sent, or -1.
func (m *member) indexOf(model string) int {
	return slices.IndexFunc(m.sent, func(s sent) bool { return s.model == model })
}

// open reports whether the member may take another request.
func (m *member) open() bool { return m.ongoing < m.limit }

// checkIdle closes idle if the member, which must have been removed, runs no request.
func (m *member) checkIdle() {
	if m.ongoing == 0 {
		close(m.idle)
	}
}

// holds reports whether m holds or loads the model, or runs a request for it.
func (m *member) holds(model string) bool {
	return slices.Contains(m.models, model) || m.indexOf(model) >= 0
}

// held returns the number of models for which holds returns true.
func (m *member) held() int {
	n := len(m.models)
	for _, s := range m.sent {
		if !slices.Contains(m.models, s.model) {
			n++
		}
	}
	return n
}

// pool holds the members of a router that have a free slot, in any order. The router's mu
// guards it.
type pool struct {
	draw    func(n int) int // returns a random number from 0 to n-1; rand.IntN except in tests
	members []*member
	few     []*member // a slice that pick reuses, so that it does not allocate
}

// add adds a member, unless it is in the pool.
func (p *pool) add(m *member) {
	if m.at < 0 {
		m.at = len(p.members)
		p.members = append(p.members, m)
	}
}

// drop removes a member, if it is in the pool.
func (p *pool) drop(m *member) {
	if m.at < 0 {
		return
	}
	last := len(p.members) - 1
	p.members[m.at] = p.members[last]
	p.members[m.at].at = m.at
	p.members[last] = nil
	p.members = p.members[:last]
	m.at = -1
}

// update adds a member if it is open, and drops it otherwise.
func (p *pool) update(m *member) {
	if m.open() {
		p.add(m)
	} else {
		p.drop(m)
	}
}

// pick chooses a member for a request, or returns nil if the pool is empty. model is the
// multiplexed model of the request, or "".
func (p *pool) pick(model string) *member {
	if model == "" || len(p.members) < 2 {
		return p.lesser(p.members)
	}
	p.few = p.few[:0]
	for _, m := range p.members {
		if m.holds(model) {
			p.few = append(p.few, m)
		}
	}
	if len(p.few) > 0 {
		return p.lesser(p.few)
	}
	least := -1
	for _, m := range p.members {
		switch n := m.held(); {
		case least < 0 || n < least:
			least, p.few = n, append(p.few[:0], m)
		case n == least:
			p.few = append(p.few, m)
		}
	}
	return p.lesser(p.few)
}

// lesser draws two members from list at random, and returns the member that runs fewer
// requests. It returns nil if list is empty.
func (p *pool) lesser(list []*member) *member {
	n := len(list)
	switch n {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	i, j := p.draw(n), 0
	if n > 2 {
		j = p.draw(n - 1) // an index among the members without i; corrected below
	}
	if j >= i {
		j++
	}
	if list[j].ongoing < list[i].ongoing {
		return list[j]
	}
	return list[i]
}
