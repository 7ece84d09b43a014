package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host"
)

const (
	// sampleEvery is the time between two samples. historyFor is the time for which a sample is
	// kept.
	sampleEvery = 5 * time.Second
	historyFor  = 5 * time.Minute
	// rateOver is the shortest time over which a rate is measured.
	rateOver = 10 * time.Second
)

// moment is a sample of the counts of all plugins at one point in time.
type moment struct {
	at         time.Time
	done, lost map[string]uint64 // numbers of spans by the plugin's name, see PluginSpans.Done and Lost
}

// history holds samples of the last minutes, oldest first.
type history []moment

// add adds a sample with the counts of stats, if the last sample is old enough. It removes
// samples that are older than historyFor.
func (h *history) add(at time.Time, stats host.Stats) {
	list := *h
	// The last sample must be nine tenths of an interval old, because a ticker may fire a
	// little early.
	if n := len(list); n > 0 && at.Sub(list[n-1].at) < sampleEvery*9/10 {
		return
	}
	s := moment{at: at, done: map[string]uint64{}, lost: map[string]uint64{}}
	for _, p := range newStatus(stats, at).Plugins {
		s.done[p.Name] += p.Spans.Done()
		s.lost[p.Name] += p.Spans.Lost()
	}
	for len(list) > 0 && at.Sub(list[0].at) > historyFor {
		list = list[1:]
	}
	*h = append(list[:len(list):len(list)], s)
}

// rate returns the number of spans per second that a plugin delivered or passed on, measured
// over the last ten seconds or a little more. It returns "" if the rate is unknown.
func (h history) rate(p Plugin, now time.Time) string {
	for i := len(h) - 1; i >= 0; i-- {
		passed := now.Sub(h[i].at)
		before, known := h[i].done[p.Name]
		if passed >= rateOver && known && p.Spans.Done() >= before {
			return fmt.Sprintf("%.3g", float64(p.Spans.Done()-before)/passed.Seconds())
		}
	}
	return ""
}

// interval is the time between two samples, for the picture of a plugin.
type interval struct {
	rate     float64 // spans per second that the plugin delivered or passed on
	from, to float64 // place in the picture: 0 is its left end, 1 its right end
	lost     bool    // spans were lost in this time
}

// intervals returns the intervals of a plugin, their highest rate, and the number of spans that
// were lost in them.
func (h history) intervals(name string) (list []interval, most float64, lost uint64) {
	if len(h) == 0 {
		return nil, 0, 0
	}
	end := h[len(h)-1].at
	place := func(t time.Time) float64 { return 1 - min(1, end.Sub(t).Seconds()/historyFor.Seconds()) }
	for i, s := range h[1:] {
		before := h[i]
		done, known := before.done[name]
		if !known || s.done[name] < done || s.lost[name] < before.lost[name] {
			continue
		}
		one := interval{
			rate: float64(s.done[name]-done) / s.at.Sub(before.at).Seconds(),
			from: place(before.at), to: place(s.at), lost: s.lost[name] > before.lost[name],
		}
		most, lost = max(most, one.rate), lost+s.lost[name]-before.lost[name]
		list = append(list, one)
	}
	return list, most, lost
}

// Size of the picture of a plugin's last five minutes, in units of its viewBox.
const (
	sparkWidth  = 300
	sparkHeight = 24
)

// spark returns the picture of the last five minutes of a plugin as SVG, and a text with
// the same meaning. Both are empty before the second sample.
func (h history) spark(name string) (svg, text string) {
	list, most, lost := h.intervals(name)
	if len(list) == 0 {
		return "", ""
	}
	text = fmt.Sprintf("at most %.3g spans per second", most)
	if lost > 0 {
		text += fmt.Sprintf(", %d lost", lost)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="last five minutes: %s">`,
		sparkWidth, sparkHeight, text)
	for _, i := range list {
		height, class := 1.0, "quiet"
		if most > 0 && i.rate > 0 {
			height, class = max(2, i.rate/most*sparkHeight), "busy"
		}
		if i.lost {
			height, class = sparkHeight, "lost"
		}
		fmt.Fprintf(&out, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`,
			class, i.from*sparkWidth, sparkHeight-height, max(1, (i.to-i.from)*sparkWidth), height)
	}
	out.WriteString("</svg>")
	return out.String(), text
}
