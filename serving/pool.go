package serving

import "slices"

// pool is the members of a router that have a free slot, in no order. The router's mu
// guards it.
type pool struct {
	draw    func(n int) int // uniform in [0, n); rand.IntN except in tests
	members []*member
	few     []*member // memory of pick
}

func (p *pool) add(m *member) {
	if m.at < 0 {
		m.at = len(p.members)
		p.members = append(p.members, m)
	}
}

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

// pick chooses a member for a request, or returns nil if the pool is empty. model is the
// multiplexed model that the request is for; empty for none.
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

// lesser returns the less loaded of two members drawn from list, nil if it is empty.
func (p *pool) lesser(list []*member) *member {
	n := len(list)
	if n <= 1 {
		if n == 0 {
			return nil
		}
		return list[0]
	}
	i, j := p.draw(n), 0
	if n > 2 {
		j = p.draw(n - 1) // among the others
	}
	if j >= i {
		j++
	}
	if list[j].ongoing < list[i].ongoing {
		return list[j]
	}
	return list[i]
}

// holds reports whether a request for model finds it in m, or on its way there.
func (m *member) holds(model string) bool {
	return slices.Contains(m.models, model) || slices.ContainsFunc(m.sent, func(s sent) bool { return s.model == model })
}

// held returns how many models m holds, with the models on their way.
func (m *member) held() int {
	n := len(m.models)
	for _, s := range m.sent {
		if !slices.Contains(m.models, s.model) {
			n++
		}
	}
	return n
}
