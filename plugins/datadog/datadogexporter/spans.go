package datadogexporter

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// resource is what all spans of one resource have in common.
type resource struct {
	attributes list
	schemaURL  string
	by         int // index of its maker
	// texts are its attributes as tags.
	texts []textTag
	// host is where it runs, by the agent's rules. Where it is not said, not even
	// by saying that it is nowhere, a span's own attribute counts.
	host     string
	hostSaid bool
}

// maker is what the agent takes from one span for all of a payload. Comparable.
type maker struct{ env, version, host, language string }

// scope is the instrumentation that made spans.
type scope struct {
	name, version, schemaURL string
	// texts are its attributes as tags, the last first.
	texts []textTag
}

// chunk is the spans of a batch that have a trace and a maker in common.
type chunk struct {
	trace traceID
	by    int // index of the maker
	// first and last are indexes of spans.
	first, last, length int32
	// next is another chunk, from 1, whose trace id has the same low half.
	next int32
}

// located is a span of the batch, and where it belongs.
type located struct {
	body            []byte
	resource, scope int32
	// next of the chunk, -1 after the last.
	next int32
}

// sorted is a batch, its spans sorted into chunks. It is used again and again.
type sorted struct {
	resources []resource
	scopes    []scope
	makers    []maker
	spans     []located
	chunks    []chunk
	// unfit is how many spans no agent takes.
	unfit int

	of map[uint64]int32 // index of the first chunk, from 1, by the low half
}

// sort reads a batch but for its spans' content. The chunks stand in the order of
// the spans that begin them, those of a maker together.
func (m *mapper) sort(request []byte) error {
	if m.known.full() {
		m.known = newDictionary()
	}
	m.general = m.general[:0]
	for _, t := range m.unified.tags {
		m.general = append(m.general, textTag{m.known.tag(t.key), t.value})
	}
	s := &m.batch
	clear(s.of)
	*s = sorted{s.resources[:0], s.scopes[:0], s.makers[:0], s.spans[:0], s.chunks[:0], 0, s.of}
	c := over(request)
	for c.next() {
		if c.is(field.RequestResourceSpans) && !m.sortResource(c.body()) {
			return errMalformed
		}
	}
	if c.bad {
		return errMalformed
	}
	if len(s.makers) > 1 {
		slices.SortStableFunc(s.chunks, func(a, b chunk) int { return a.by - b.by })
	}
	return nil
}

// sortResource goes over the spans of a resource twice: it may stand behind them.
func (m *mapper) sortResource(body []byte) bool {
	of, schemaURL, ok := headOf(body, field.ResourceSpansResource, field.ResourceSpansSchemaURL)
	if !ok || !m.addResource(of, schemaURL) {
		return false
	}
	for c := over(body); c.next(); {
		if c.is(field.ResourceSpansScopeSpans) && !m.sortScope(c.body()) {
			return false
		}
	}
	return true
}

// headOf gives what stands once for all spans of a resource or scope.
func headOf(body []byte, num, url protowire.Number) (head []byte, schemaURL string, ok bool) {
	c := over(body)
	for c.next() {
		switch {
		case c.is(num):
			head = join(head, c.body())
		case c.is(url):
			schemaURL = view(c.body())
		}
	}
	return head, schemaURL, !c.bad
}

func (m *mapper) addResource(body []byte, schemaURL string) bool {
	r := resource{attributes: newList(), schemaURL: schemaURL}
	if !m.readList(&r.attributes, body, field.ResourceAttributes) {
		return false
	}
	for _, e := range r.attributes.entries {
		if e.key.tag != nil {
			r.texts = append(r.texts, textTag{e.key.tag, e.text()})
		}
	}
	own := attributes{&r.attributes, &r.attributes}
	r.host, r.hostSaid = m.hostname(own)
	if !r.hostSaid {
		r.host = own.text(askHostname)
	}
	by := maker{
		cmp.Or(own.text(askEnv), m.unified.env), cmp.Or(own.text(askVersion), m.unified.version),
		r.host, strings.Clone(own.text(askLanguage)), // a header, which net/http may write when the call is over
	}
	s := &m.batch
	if r.by = slices.Index(s.makers, by); r.by < 0 {
		r.by = len(s.makers)
		s.makers = append(s.makers, by)
	}
	s.resources = append(s.resources, r)
	return true
}

// readList reads the attributes of a message.
func (m *mapper) readList(into *list, body []byte, num protowire.Number) bool {
	into.reset()
	m.serial++
	c := over(body)
	for c.next() {
		if !c.is(num) {
			continue
		}
		key, v, ok := readKeyValue(c.body())
		if !ok {
			return false
		}
		into.add(m.known.key(key), v, m.serial)
	}
	return !c.bad
}

func (m *mapper) sortScope(body []byte) bool {
	of, schemaURL, ok := headOf(body, field.ScopeSpansScope, field.ScopeSpansSchemaURL)
	if !ok || !m.addScope(of, schemaURL) {
		return false
	}
	s := &m.batch
	at := located{resource: int32(len(s.resources) - 1), scope: int32(len(s.scopes) - 1), next: -1}
	by := s.resources[at.resource].by
	for c := over(body); c.next(); {
		if !c.is(field.ScopeSpansSpans) {
			continue
		}
		at.body = c.body()
		trace, fit := fitness(c.body())
		if !fit {
			s.unfit++
			continue
		}
		s.put(at, trace, by)
	}
	return true
}

func (m *mapper) addScope(body []byte, schemaURL string) bool {
	s := scope{schemaURL: schemaURL}
	c := over(body)
	for c.next() {
		switch {
		case c.is(field.ScopeName):
			s.name = view(c.body())
		case c.is(field.ScopeVersion):
			s.version = view(c.body())
		}
	}
	if c.bad || !m.readList(&m.members, body, field.ScopeAttributes) {
		return false
	}
	for _, e := range slices.Backward(m.members.entries) {
		if e.key.tag != nil {
			s.texts = append(s.texts, textTag{e.key.tag, e.text()})
		}
	}
	m.batch.scopes = append(m.batch.scopes, s)
	return true
}

// fitness reads a span's trace id, and tells whether an agent takes the span: it
// drops those whose trace id has zeros in its low half, or that have no id. It
// looks no further than it must; of several ids, which no sender writes, the
// first counts.
func fitness(body []byte) (trace traceID, fit bool) {
	var own uint64
	c := over(body)
	for (trace.low == 0 || own == 0) && c.next() {
		switch {
		case c.is(field.SpanTraceID):
			trace = readTraceID(c.body())
		case c.is(field.SpanSpanID):
			own = id(c.body())
		}
	}
	return trace, trace.low != 0 && own != 0
}

// put adds a span to the chunk of its trace and maker.
func (s *sorted) put(span located, trace traceID, by int) {
	n := int32(len(s.spans))
	s.spans = append(s.spans, span)
	head := s.of[trace.low]
	for i := head; i != 0; i = s.chunks[i-1].next {
		if c := &s.chunks[i-1]; c.trace == trace && c.by == by {
			s.spans[c.last].next, c.last = n, n
			c.length++
			return
		}
	}
	s.chunks = append(s.chunks, chunk{trace: trace, by: by, first: n, last: n, length: 1, next: head})
	s.of[trace.low] = int32(len(s.chunks))
}

// spanData is a span that was read.
type spanData struct {
	trace                                          traceID
	own, parent                                    uint64
	name, state, message                           string
	kind                                           spanKind
	code                                           uint64
	start, end                                     int64
	droppedAttributes, droppedEvents, droppedLinks uint32
	events                                         []event
	links                                          []link
}

// event is one of a span.
type event struct {
	name       string
	time       uint64
	attributes []entry
	dropped    uint32
}

// link is one of a span.
type link struct {
	trace      traceID
	span       uint64
	state      string
	flags      uint32
	attributes []entry
	dropped    uint32
}

// read reads a span of a trace whole, its attributes into m.attributes. The result
// holds until the next call.
func (m *mapper) read(body []byte, of traceID) (s *spanData, ok bool) {
	s = &m.span
	*s = spanData{trace: of}
	m.attributes.reset()
	m.serial++
	serial := m.serial
	m.eventBodies, m.linkBodies = m.eventBodies[:0], m.linkBodies[:0]
	var status []byte
	c := over(body)
	for c.next() {
		switch c.typ {
		case protowire.BytesType:
			switch c.num {
			case field.SpanAttributes:
				key, v, ok := readKeyValue(c.body())
				if !ok {
					return s, false
				}
				m.attributes.add(m.known.key(key), v, serial)
			case field.SpanSpanID:
				if s.own == 0 {
					s.own = id(c.body())
				}
			case field.SpanParentID:
				s.parent = id(c.body())
			case field.SpanTraceState:
				s.state = view(c.body())
			case field.SpanName:
				s.name = view(c.body())
			case field.SpanStatus:
				status = join(status, c.body())
			case field.SpanEvents:
				m.eventBodies = append(m.eventBodies, c.body())
			case field.SpanLinks:
				m.linkBodies = append(m.linkBodies, c.body())
			}
		case protowire.Fixed64Type:
			switch c.num {
			case field.SpanStart:
				s.start = nanoseconds(c.bits)
			case field.SpanEnd:
				s.end = nanoseconds(c.bits)
			}
		case protowire.VarintType:
			switch c.num {
			case field.SpanKind:
				s.kind = spanKind(c.bits)
			case field.SpanDroppedAttributes:
				s.droppedAttributes = uint32(c.bits)
			case field.SpanDroppedEvents:
				s.droppedEvents = uint32(c.bits)
			case field.SpanDroppedLinks:
				s.droppedLinks = uint32(c.bits)
			}
		}
	}
	return s, !c.bad && s.readStatus(status) && m.readChildren(s)
}

// readChildren reads the events and links, after the span's attributes, for a key
// of the dictionary remembers its place in one list at a time.
func (m *mapper) readChildren(s *spanData) bool {
	m.loose, m.events, m.links = m.loose[:0], m.events[:0], m.links[:0]
	for _, body := range m.eventBodies {
		e, ok := m.readEvent(body)
		if !ok {
			return false
		}
		m.events = append(m.events, e)
	}
	for _, body := range m.linkBodies {
		l, ok := m.readLink(body)
		if !ok {
			return false
		}
		m.links = append(m.links, l)
	}
	s.events, s.links = m.events, m.links
	return true
}

func (s *spanData) readStatus(body []byte) bool {
	c := over(body)
	for c.next() {
		switch {
		case c.is(field.StatusMessage):
			s.message = view(c.body())
		case c.num == field.StatusCode && c.typ == protowire.VarintType:
			s.code = c.bits
		}
	}
	return !c.bad
}

// nanoseconds is OTLP's time as Datadog has it; those beyond the year 2262 stay
// there.
func nanoseconds(bits uint64) int64 { return int64(min(bits, 1<<63-1)) }

func (m *mapper) readEvent(body []byte) (e event, ok bool) {
	m.serial++
	serial, first := m.serial, len(m.loose)
	c := over(body)
	for c.next() {
		switch {
		case c.is(field.EventAttributes):
			if !m.addLoose(c.body(), first, serial) {
				return e, false
			}
		case c.is(field.EventName):
			e.name = view(c.body())
		case c.num == field.EventTime && c.typ == protowire.Fixed64Type:
			e.time = c.bits
		case c.num == field.EventDroppedAttributes && c.typ == protowire.VarintType:
			e.dropped = uint32(c.bits)
		}
	}
	e.attributes = m.loose[first:len(m.loose):len(m.loose)]
	return e, !c.bad
}

func (m *mapper) readLink(body []byte) (l link, ok bool) {
	m.serial++
	serial, first := m.serial, len(m.loose)
	c := over(body)
	for c.next() {
		switch {
		case c.is(field.LinkAttributes):
			if !m.addLoose(c.body(), first, serial) {
				return l, false
			}
		case c.is(field.LinkTraceID):
			l.trace = readTraceID(c.body())
		case c.is(field.LinkSpanID):
			l.span = id(c.body())
		case c.is(field.LinkTraceState):
			l.state = view(c.body())
		case c.num == field.LinkFlags && c.typ == protowire.Fixed32Type:
			l.flags = uint32(c.bits)
		case c.num == field.LinkDroppedAttributes && c.typ == protowire.VarintType:
			l.dropped = uint32(c.bits)
		}
	}
	l.attributes = m.loose[first:len(m.loose):len(m.loose)]
	return l, !c.bad
}

// addLoose reads an attribute of an event or link, whose begin at first.
func (m *mapper) addLoose(body []byte, first int, serial uint64) bool {
	text, v, ok := readKeyValue(body)
	if !ok {
		return false
	}
	k := m.known.key(text)
	if k.seen == serial {
		m.loose[first+k.at].value = v
		return true
	}
	k.seen, k.at = serial, len(m.loose)-first
	m.loose = append(m.loose, entry{k, v})
	return true
}
