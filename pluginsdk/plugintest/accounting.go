package plugintest

// accounting compares the spans that the plugin has answered with OK with the spans that
// have arrived at the back end. It is safe for concurrent use.
type accounting struct {
	p         *subject
	delivered sharedList[delivery]
}

// delivery describes a batch that the plugin has answered with OK.
type delivery struct {
	ids []string
	// filtered and rejected are the numbers of spans in the plugin's answer. Filtered spans
	// must not arrive at the back end. Rejected spans may arrive.
	filtered, rejected int
}

// deliver sends a batch, which the plugin must answer with OK, and records the answer.
func (a *accounting) deliver(b batch) {
	answer := a.p.delivers(b)
	a.delivered.add(delivery{b.ids, answer.filtered(), max(0, answer.Rejected)})
}

// balance fails the rule if delivered spans have not arrived at the back end, or several
// times. It does nothing if the suite cannot see the spans that arrive.
func (a *accounting) balance() {
	ids, visible := a.p.arrivedIDs()
	if !visible {
		return
	}
	counts := map[string]int{}
	for _, id := range ids {
		counts[id]++
	}
	for _, d := range a.delivered.all() {
		d.compare(a.p.t, counts)
	}
}

// compare fails the rule if the arrivals of the batch's spans do not match the plugin's
// answer. counts is the number of arrivals by span id.
func (d delivery) compare(t *trial, counts map[string]int) {
	var lost, repeated []string
	for _, id := range d.ids {
		switch n := counts[id]; {
		case n == 0:
			lost = append(lost, id)
		case n > 1:
			repeated = append(repeated, id)
		}
	}
	switch {
	case len(lost) > d.filtered+d.rejected:
		t.errorf("%d of %d spans answered OK have not arrived, and the answer counts only %d as filtered or rejected; the first is %s", len(lost), len(d.ids), d.filtered+d.rejected, lost[0])
	case len(lost) < d.filtered:
		t.errorf("%d of %d spans have arrived, but the answer counts %d as filtered: count each batch for itself", len(d.ids)-len(lost), len(d.ids), d.filtered)
	}
	if len(repeated) > 0 {
		t.errorf("%d of %d spans, each sent once, have arrived several times; the first is %s", len(repeated), len(d.ids), repeated[0])
	}
}
