package consoleexporter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/semconv"
)

// How many lines a span's attributes take, and the text of each error, and how
// many of these there are. What was left out is counted.
const (
	attributeLines = 6
	errorLines     = 3
	faultsOfSpan   = 4
	// leastDetail is the width below which there is nothing to read.
	leastDetail = 8
)

// leading are the attributes that come first, in this order. trailing are long
// and come last. What is in neither stands between them as the span has it.
var (
	leading = []attribute.Key{
		semconv.HTTPStatusCode, semconv.HTTPResponseStatusCode, semconv.ServeWebSocketCloseCode,
		semconv.RPCGRPCStatusCode, semconv.RPCResponseStatusCode,
		semconv.HTTPRoute, semconv.Route, semconv.ServeRoute,
		semconv.Deployment, semconv.ServeDeployment, semconv.App, semconv.ServeApp,
		semconv.RayRequestID, semconv.RequestID, semconv.ServeRequestID,
		semconv.ReplicaID, semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID,
	}
	trailing = []attribute.Key{semconv.ServeReplicaID, semconv.RayJobID, semconv.RayActorID, semconv.RayTaskID, semconv.ServeTaskID}
)

// twins are attributes that say the same: the first that a span has, with the
// same value, stands for the others.
var twins = [][]attribute.Key{
	{semconv.RayRequestID, semconv.RequestID, semconv.ServeRequestID},
	{semconv.RayTaskID, semconv.ServeTaskID},
	{semconv.HTTPRoute, semconv.Route, semconv.ServeRoute, semconv.RequestRoutePath, semconv.ServeRequestRoutePath},
	{semconv.HTTPStatusCode, semconv.HTTPResponseStatusCode, semconv.ServeWebSocketCloseCode},
	{semconv.RPCGRPCStatusCode, semconv.RPCResponseStatusCode},
	{semconv.Deployment, semconv.ServeDeployment},
	{semconv.App, semconv.ServeApp},
	{semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID},
}

// inName are attributes of the runtime's own spans that only repeat what their
// name says, or what is so for all of their kind.
var inName = []attribute.Key{
	semconv.ResourceName, semconv.CallMethod, semconv.RequestMethod, semconv.RequestType, semconv.RequestRoutePath,
	semconv.HTTPMethod, semconv.RPCMethod, semconv.RPCService, semconv.RPCSystem,
	semconv.IsStreaming, semconv.IsHTTPRequest, semconv.IsGRPCRequest,
	semconv.ServeCallMethod, semconv.ServeRequestMethod, semconv.ServeRequestType, semconv.ServeRequestRoutePath,
	semconv.HTTPRequestMethod, semconv.RPCSystemName,
	semconv.ServeIsStreaming, semconv.ServeIsHTTPRequest, semconv.ServeIsGRPCRequest,
}

// families are the runtime's own spans.
var families = []string{
	semconv.SpanProxyHTTP, semconv.SpanProxyWebSocket, semconv.SpanProxyGRPC, semconv.SpanRouter, semconv.SpanReplica,
	semconv.SpanBatch, semconv.SpanModelLoad,
}

// inherited knows what has been told of the spans above the one that is being
// drawn, so that a span tells only what is new.
type inherited struct {
	values map[attribute.Key][]string // the nearest last
	levels [][]attribute.Key          // what each level has added
}

// at goes to a row of that depth, which follows the last one.
func (h *inherited) at(depth int) *inherited {
	if h.values == nil {
		h.values = map[attribute.Key][]string{}
	}
	for len(h.levels) > depth {
		for _, key := range h.levels[len(h.levels)-1] {
			h.values[key] = h.values[key][:len(h.values[key])-1]
		}
		h.levels = h.levels[:len(h.levels)-1]
	}
	for len(h.levels) < depth+1 { // a span drawn earlier has told nothing here
		h.levels = append(h.levels, nil)
	}
	return h
}

// tell notes a value and says whether it is new.
func (h *inherited) tell(key attribute.Key, value string) bool {
	values := h.values[key]
	if n := len(values); n > 0 && values[n-1] == value {
		return false
	}
	h.values[key] = append(values, value)
	top := len(h.levels) - 1
	h.levels[top] = append(h.levels[top], key)
	return true
}

// token is a word of the lines below a span: a key and its value, or either.
type token struct{ key, value string }

func (t token) text() string {
	if t.key == "" {
		return t.value
	}
	if t.value == "" || strings.ContainsAny(t.value, " \"=") {
		return t.key + `="` + strings.ReplaceAll(t.value, `"`, `\"`) + `"`
	}
	return t.key + "=" + t.value
}

// details draws what is to be said of a span beside its line.
func (p *paper) details(d drawn, r row, told *inherited) {
	words := attributesOf(d, r, told)
	if p.width-p.marginCells(r) < leastDetail {
		return
	}
	sign := p.signs()
	p.faults(r)
	p.tokens(r, "", words, attributeLines)
	p.tokens(r, sign.event, eventsOf(r.span, p.ascii), 1)
	p.tokens(r, sign.link, linksOf(r.span), 1)
	if r.above > 0 {
		p.tokens(r, sign.earlier, []token{{value: number(r.above, "child", "children") + " above"}}, 1)
	}
}

// tokens draws words in lines of their own, no more than lines, the sign in
// front of the first. What does not go into them is counted.
func (p *paper) tokens(r row, sign string, all []token, lines int) {
	for i := 0; i < len(all); lines-- {
		p.margin(r)
		p.put(faint, sign)
		start, left := p.at, ""
		if lines == 1 {
			left = "+" + strconv.Itoa(len(all)-i) + " more"
		}
		for ; i < len(all); i++ {
			spare := 0
			if left != "" && i < len(all)-1 {
				spare = len(left) + gap
			}
			if p.at > start {
				if p.cells(all[i].text())+gap > p.room()-spare {
					break
				}
				p.skip(gap)
			}
			p.token(all[i], spare)
		}
		if lines == 1 && i < len(all) {
			p.skip(gap)
			p.put(faint, "+"+strconv.Itoa(len(all)-i)+" more")
			i = len(all)
		}
		p.newline()
	}
}

// token writes a key faintly and its value plainly, and leaves spare cells of
// the line, unless what is left for the word could not be read.
func (p *paper) token(t token, spare int) {
	if p.room()-spare >= leastDetail {
		p.width -= spare
		defer func() { p.width += spare }()
	}
	if t.key == "" {
		p.put(faint, t.value)
		return
	}
	text := t.text()
	p.put(faint, text[:len(t.key)+1])
	p.put(plain, text[len(t.key)+1:])
}

// faults draws the texts of a span's exceptions, and of its status where no
// exception says the same; the first few of them.
func (p *paper) faults(r row) {
	type fault struct{ text, kind string }
	var all []fault
	said := map[string]bool{}
	add := func(text, kind string) {
		if !said[text] {
			said[text] = true
			all = append(all, fault{text, kind})
		}
	}
	for _, e := range r.span.events {
		if e.name == semconv.EventException {
			add(exceptionOf(e))
		}
	}
	if r.span.message != "" {
		add(r.span.message, "")
	}
	for _, one := range all[:min(len(all), faultsOfSpan)] {
		p.fault(r, one.text, one.kind)
	}
	if left := len(all) - faultsOfSpan; left > 0 {
		p.margin(r)
		p.put(red, p.signs().fault)
		p.put(faint, "+"+strconv.Itoa(left)+" more")
		p.newline()
	}
}

// exceptionOf gives the message of an exception event and its type.
func exceptionOf(e event) (text, kind string) {
	for _, kv := range e.attributes {
		switch kv.Key {
		case semconv.ExceptionType:
			kind = kv.Value.String()
		case semconv.ExceptionMessage:
			text = kv.Value.String()
		}
	}
	return text, kind
}

// fault draws one text in lines of its own, and its type where there is room.
func (p *paper) fault(r row, text, kind string) {
	if text = strings.TrimSpace(text); text == "" {
		text, kind = cmp.Or(strings.TrimSpace(kind), `""`), ""
	}
	sign := p.signs().fault
	most := p.width - p.marginCells(r) - p.cells(sign)
	for _, one := range wrap(text, most, errorLines, p.ascii) {
		if p.at > 0 {
			p.newline()
		}
		p.margin(r)
		p.put(red, sign)
		p.put(red, one)
		sign = p.signs().hang
	}
	if kind != "" && p.cells(kind)+gap <= p.room() {
		p.skip(gap)
		p.put(faint, kind)
	}
	p.newline()
}

// attributesOf gives the attributes of a span that are worth a word: those that
// say more than its name, its parents and each other.
func attributesOf(d drawn, r row, told *inherited) []token {
	s := r.span
	values := make(map[attribute.Key]string, len(s.attributes))
	for _, kv := range s.attributes {
		values[kv.Key] = kv.Value.String()
	}
	ours, hidden := isOurs(s.name), map[attribute.Key]bool{}
	hideTwins(values, hidden)
	if ours {
		for _, key := range inName {
			hidden[key] = true
		}
		for _, app := range []attribute.Key{semconv.App, semconv.ServeApp} {
			if values[app] == semconv.DefaultApp {
				hidden[app] = true
			}
		}
		hidden[semconv.ServeQueueWaitMS] = values[semconv.ServeQueueWaitMS] == "0"
	}
	var list []token
	if r.depth == 0 && s.parent.IsValid() {
		where := " (not seen yet)"
		if s.elsewhere {
			where = " (in another process)"
		}
		list = append(list, token{value: "parent " + s.parent.String() + where})
	}
	if s.service != d.service {
		list = append(list, token{"service", s.service})
	}
	add := func(key attribute.Key) {
		value, has := values[key]
		if !has {
			return
		}
		delete(values, key)
		isNew := told.tell(key, value) || !ours && ofOneCall(key)
		if isNew && !hidden[key] && value != "" {
			list = append(list, token{string(key), value})
		}
	}
	for _, key := range leading {
		add(key)
	}
	for _, kv := range s.attributes {
		if !slices.Contains(trailing, kv.Key) {
			add(kv.Key)
		}
	}
	for _, key := range trailing {
		add(key)
	}
	return list
}

// isOurs tells whether the runtime made the span.
func isOurs(name string) bool {
	family, _, _ := strings.Cut(name, " ")
	return slices.Contains(families, family)
}

// ofOneCall tells whether a key is of a call over the network: another call's
// equal value is no news of that call.
func ofOneCall(key attribute.Key) bool {
	return strings.HasPrefix(string(key), "http.") || strings.HasPrefix(string(key), "rpc.")
}

// hideTwins adds the keys whose value is to be seen in another one.
func hideTwins(values map[attribute.Key]string, hidden map[attribute.Key]bool) {
	for _, same := range twins {
		first := ""
		for _, key := range same {
			if value, has := values[key]; has && first == "" {
				first = value
			} else if has && value == first {
				hidden[key] = true
			}
		}
	}
	// An actor's id is the end of its tasks' ids, a replica's that of its full one.
	ends := func(part, whole attribute.Key) bool {
		return values[part] != "" && strings.HasSuffix(values[whole], values[part])
	}
	if ends(semconv.RayActorID, semconv.RayTaskID) {
		hidden[semconv.RayActorID] = true
	}
	if ends(semconv.ReplicaID, semconv.ServeReplicaID) {
		hidden[semconv.ServeReplicaID] = true
	}
}

// eventsOf gives the events that are no exceptions, with their time since the
// span's start.
func eventsOf(s *span, ascii bool) []token {
	var list []token
	for _, e := range s.events {
		if e.name == semconv.EventException {
			continue
		}
		text := cmp.Or(e.name, `""`)
		if s.start > 0 && e.at >= s.start {
			text += " +" + duration(e.at-s.start, ascii)
		}
		list = append(list, token{value: text})
	}
	return list
}

func linksOf(s *span) []token {
	var list []token
	for _, l := range s.links {
		list = append(list, token{value: l.trace.String() + "/" + l.span.String()})
	}
	return list
}
