package waterfall

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/semconv"
)

// Limits of the lines below a span. If entries are omitted, their number is shown.
const (
	attributeLines = 6 // lines for a span's attributes
	errorLines     = 3 // lines for the text of an error
	maxErrors      = 4 // errors per span
	// minDetailCells is the width below which details are omitted as unreadable.
	minDetailCells = 8
)

// leading lists the attributes that are shown first, in this order. trailing lists long
// attributes, which are shown last. Other attributes are shown in between, in the span's
// order.
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

// duplicates lists groups of attributes with the same meaning. If several attributes of a
// group have the same value, only the first of them is shown.
var duplicates = [][]attribute.Key{
	{semconv.RayRequestID, semconv.RequestID, semconv.ServeRequestID},
	{semconv.RayTaskID, semconv.ServeTaskID},
	{semconv.HTTPRoute, semconv.Route, semconv.ServeRoute, semconv.RequestRoutePath, semconv.ServeRequestRoutePath},
	{semconv.HTTPStatusCode, semconv.HTTPResponseStatusCode, semconv.ServeWebSocketCloseCode},
	{semconv.RPCGRPCStatusCode, semconv.RPCResponseStatusCode},
	{semconv.Deployment, semconv.ServeDeployment},
	{semconv.App, semconv.ServeApp},
	{semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID},
}

// redundant lists attributes of the runtime's own spans that only repeat the span's
// name, or are the same for all spans of the family.
var redundant = []attribute.Key{
	semconv.ResourceName, semconv.CallMethod, semconv.RequestMethod, semconv.RequestType, semconv.RequestRoutePath,
	semconv.HTTPMethod, semconv.RPCMethod, semconv.RPCService, semconv.RPCSystem,
	semconv.IsStreaming, semconv.IsHTTPRequest, semconv.IsGRPCRequest,
	semconv.ServeCallMethod, semconv.ServeRequestMethod, semconv.ServeRequestType, semconv.ServeRequestRoutePath,
	semconv.HTTPRequestMethod, semconv.RPCSystemName,
	semconv.ServeIsStreaming, semconv.ServeIsHTTPRequest, semconv.ServeIsGRPCRequest,
}

// families lists the first words of the names of the runtime's own spans.
var families = []string{
	semconv.SpanProxyHTTP, semconv.SpanProxyWebSocket, semconv.SpanProxyGRPC, semconv.SpanRouter, semconv.SpanReplica,
	semconv.SpanBatch, semconv.SpanModelLoad,
}

// inherited holds the attributes that the rows of the ancestors show, so that a row shows only
// values that differ from its ancestors' values.
type inherited struct {
	values map[attribute.Key][]string // the last value in each list is the value of the nearest ancestor
	levels [][]attribute.Key          // the keys that the row at each depth has added
}

// at prepares for a row at the given depth. It removes the attributes of rows that are not
// ancestors of this row.
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
	for len(h.levels) < depth+1 { // an ancestor that an earlier drawing has shown has no attributes here
		h.levels = append(h.levels, nil)
	}
	return h
}

// add records the value of an attribute for the current row. It reports whether the value
// differs from the value of the nearest ancestor.
func (h *inherited) add(key attribute.Key, value string) bool {
	values := h.values[key]
	if n := len(values); n > 0 && values[n-1] == value {
		return false
	}
	h.values[key] = append(values, value)
	top := len(h.levels) - 1
	h.levels[top] = append(h.levels[top], key)
	return true
}

// token is an entry in the lines below a span: a key with its value, or only a value.
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

// details draws the lines below a span's row: errors, attributes, events and links.
func (d *drawing) details(r row) {
	words := d.attributes(r) // called even if they are not drawn, because it records them in d.shown
	if d.to.Width-d.to.cells(d.margin(r)) < minDetailCells {
		return
	}
	d.errors(r)
	d.tokens(r, "", words, attributeLines)
	d.tokens(r, d.sign.pause, d.gaps(r), 1)
	d.tokens(r, d.sign.event, eventsOf(r.span, d.to.ASCII), 1)
	d.tokens(r, d.sign.link, linksOf(r.span), 1)
	if r.above > 0 {
		d.tokens(r, d.sign.earlier, []token{{value: counted(r.above, "child", "children") + " above"}}, 1)
	}
}

// tokens draws entries in at most the given number of lines. Each line begins with sign. If
// entries are omitted, the last line shows their number.
func (d *drawing) tokens(r row, sign string, all []token, lines int) {
	for i := 0; i < len(all); lines-- {
		d.to.put(faint, d.margin(r))
		d.to.put(faint, sign)
		start, left := d.to.at, ""
		if lines == 1 {
			left = "+" + strconv.Itoa(len(all)-i) + " more"
		}
		for ; i < len(all); i++ {
			spare := 0
			if left != "" && i < len(all)-1 {
				spare = len(left) + gap
			}
			if d.to.at > start {
				if d.to.cells(all[i].text())+gap > d.to.room()-spare {
					break
				}
				d.to.skip(gap)
			}
			d.token(all[i], spare)
		}
		if lines == 1 && i < len(all) {
			d.to.skip(gap)
			d.to.put(faint, "+"+strconv.Itoa(len(all)-i)+" more")
			i = len(all)
		}
		d.to.newline()
	}
}

// token draws a key in faint style and its value in plain style. It leaves a number of cells
// (spare) at the end of the line free, unless the remaining part would be too narrow.
func (d *drawing) token(t token, spare int) {
	if d.to.room()-spare >= minDetailCells {
		d.to.Width -= spare
		defer func() { d.to.Width += spare }()
	}
	if t.key == "" {
		d.to.put(faint, t.value)
		return
	}
	text := t.text()
	d.to.put(faint, text[:len(t.key)+1])
	d.to.put(plain, text[len(t.key)+1:])
}

// errors draws the error messages of a span, at most maxErrors.
func (d *drawing) errors(r row) {
	all := errorsOf(r.span)
	for _, one := range all[:min(len(all), maxErrors)] {
		d.errorText(r, one.text, one.kind)
	}
	if left := len(all) - maxErrors; left > 0 {
		d.to.put(faint, d.margin(r))
		d.to.put(red, d.sign.fault)
		d.to.put(faint, "+"+strconv.Itoa(left)+" more")
		d.to.newline()
	}
}

// message is the text of an error, and the type of the error. The type may be empty.
type message struct{ text, kind string }

// errorsOf returns the messages of a span's exceptions, and its status message. Each text
// occurs once.
func errorsOf(s *Span) (all []message) {
	seen := map[string]bool{}
	add := func(text, kind string) {
		if !seen[text] {
			seen[text] = true
			all = append(all, message{text, kind})
		}
	}
	for _, e := range s.Events {
		if e.Name == semconv.EventException {
			add(exceptionOf(e))
		}
	}
	if s.Message != "" {
		add(s.Message, "")
	}
	return all
}

// gaps returns descriptions of the gaps of a span. A gap is a long interval in which none of
// the span's children ran.
func (d *drawing) gaps(r row) []token {
	if d.analysis == nil {
		return nil
	}
	var list []token
	for _, gap := range d.analysis.gaps[r.node] {
		list = append(list, token{value: gapText(r, gap, d.to.ASCII)})
	}
	return list
}

func gapText(r row, gap interval, ascii bool) string {
	return "no child for " + duration(gap.length(), ascii) + " at +" + duration(gap.from-r.start, ascii)
}

// exceptionOf returns the message and the type of an exception event.
func exceptionOf(e Event) (text, kind string) {
	for _, kv := range e.Attributes {
		switch kv.Key {
		case semconv.ExceptionType:
			kind = kv.Value.String()
		case semconv.ExceptionMessage:
			text = kv.Value.String()
		}
	}
	return text, kind
}

// errorText draws an error message in lines of its own. It adds the type of the error (kind) if
// the last line has room for it.
func (d *drawing) errorText(r row, text, kind string) {
	if text = strings.TrimSpace(text); text == "" {
		text, kind = cmp.Or(strings.TrimSpace(kind), `""`), ""
	}
	sign := d.sign.fault
	most := d.to.Width - d.to.cells(d.margin(r)) - d.to.cells(sign)
	for _, one := range wrap(text, most, errorLines, d.to.ASCII) {
		if d.to.at > 0 {
			d.to.newline()
		}
		d.to.put(faint, d.margin(r))
		d.to.put(red, sign)
		d.to.put(red, one)
		sign = d.sign.hang
	}
	if kind != "" && d.to.cells(kind)+gap <= d.to.room() {
		d.to.skip(gap)
		d.to.put(faint, kind)
	}
	d.to.newline()
}

// attributes returns the attributes of a span that are shown. It omits attributes that
// repeat the span's name, an ancestor's value or another attribute.
func (d *drawing) attributes(r row) []token {
	s, shown := r.span, d.shown.at(r.depth)
	values := make(map[attribute.Key]string, len(s.Attributes))
	for _, kv := range s.Attributes {
		values[kv.Key] = kv.Value.String()
	}
	ours, hidden := isOurs(s.Name), map[attribute.Key]bool{}
	hideDuplicates(values, hidden)
	if ours {
		for _, key := range redundant {
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
	if r.depth == 0 && s.Parent.IsValid() {
		note := " (not seen yet)"
		if s.RemoteParent {
			note = " (in another process)"
		}
		list = append(list, token{value: "parent " + s.Parent.String() + note})
	}
	if s.Service != d.service {
		list = append(list, token{"service", s.Service})
	}
	add := func(key attribute.Key) {
		value, has := values[key]
		if !has {
			return
		}
		delete(values, key)
		isNew := shown.add(key, value) || !ours && isCallAttribute(key)
		if isNew && !hidden[key] && value != "" {
			list = append(list, token{string(key), value})
		}
	}
	for _, key := range leading {
		add(key)
	}
	for _, kv := range s.Attributes {
		if !slices.Contains(trailing, kv.Key) {
			add(kv.Key)
		}
	}
	for _, key := range trailing {
		add(key)
	}
	return list
}

// isOurs reports whether the runtime made the span.
func isOurs(name string) bool {
	family, _, _ := strings.Cut(name, " ")
	return slices.Contains(families, family)
}

// isCallAttribute reports whether a key describes a network call. Such an attribute is shown
// even if an ancestor has the same value, because the ancestor describes another call.
func isCallAttribute(key attribute.Key) bool {
	return strings.HasPrefix(string(key), "http.") || strings.HasPrefix(string(key), "rpc.")
}

// hideDuplicates adds a key to hidden if another attribute shows the same value.
func hideDuplicates(values map[attribute.Key]string, hidden map[attribute.Key]bool) {
	for _, same := range duplicates {
		first := ""
		for _, key := range same {
			if value, has := values[key]; has && first == "" {
				first = value
			} else if has && value == first {
				hidden[key] = true
			}
		}
	}
	// A task id ends in the actor id, and a full replica id in the unique id.
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

// eventsOf returns the names of a span's events, with their times after the start of the span.
// It omits exceptions, which errorsOf returns.
func eventsOf(s *Span, ascii bool) []token {
	var list []token
	for _, e := range s.Events {
		if e.Name == semconv.EventException {
			continue
		}
		list = append(list, token{value: cmp.Or(e.Name, `""`) + e.since(s, ascii)})
	}
	return list
}

// since returns the time of an event after the start of its span, " +1.5ms". It returns "" if
// one of the times is unknown or the event is earlier.
func (e Event) since(s *Span, ascii bool) string {
	if s.Start == 0 || e.At < s.Start {
		return ""
	}
	return " +" + duration(e.At-s.Start, ascii)
}

func linksOf(s *Span) []token {
	var list []token
	for _, l := range s.Links {
		list = append(list, token{value: l.Trace.String() + "/" + l.Span.String()})
	}
	return list
}
