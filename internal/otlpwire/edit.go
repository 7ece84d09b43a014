package otlpwire

// An edit is what is recorded on one message: a resource, a scope or a span,
// which name theirs in their entries, or an event or a link, see childEdit.
type edit struct {
	first, last int32 // list of attrEdits, 1 + index
	count       int32 // of them
	index       int32 // of them by key: 1 + index in indexes, 0: they are few
	// Of a span: list of childEdits, and that of those that were added.
	firstChild, firstAdded, lastAdded int32

	dropped, named, statused bool
	inside                   bool // an attribute is replaced or deleted

	name    string
	code    int32
	message string
}

// onlyAdds tells whether all that is recorded is attributes that the message had
// not: what it had is then left as it is. It was read to know that, so that a
// fault in it is known.
func (e *edit) onlyAdds() bool {
	return e.first != 0 && !e.inside && !e.named && !e.statused && e.firstChild == 0 && e.firstAdded == 0
}

// A childEdit is what is recorded on one event or link of a span, or one that
// was added. Those of a span are two lists. That of what is in the bytes is in
// the order of the bytes, so that reading and writing meet them by going along
// it.
type childEdit struct {
	edit

	span  int32
	next  int32  // 1 + the index of the span's next childEdit
	num   uint32 // field.SpanEvents or field.SpanLinks
	at    int    // offset of the field in the request; of one that was added, its length + the index
	added []byte // content of one that was added
}

// An owner is a message that can be edited.
type owner struct {
	kind ownerKind
	i    int // index of its entry; of an event or a link, of its span's
	at   int // of an event or a link: as in childEdit
	num  uint32
}

type ownerKind uint8

const (
	ofResource ownerKind = iota
	ofScope
	ofSpan
	ofChild
)

// editField is where the owner's entry, or that of its span, names its edit.
// Entries do not move.
func (r *Request) editField(o owner) *int32 {
	switch o.kind {
	case ofResource:
		return &r.resources[o.i].edit
	case ofScope:
		return &r.scopes[o.i].edit
	default:
		return &r.spans[o.i].edit
	}
}

// editOf gives the edit of an owner, nil if none. The pointer is good until the
// next touch.
func (r *Request) editOf(o owner) *edit {
	e := r.editAt(*r.editField(o))
	if o.kind != ofChild || e == nil {
		return e
	}
	if i := o.at - len(r.raw); i >= 0 {
		return &r.children[i].edit
	}
	if i := r.seek(e, o); i != 0 && r.children[i-1].at == o.at {
		return &r.children[i-1].edit
	}
	return nil
}

// editAt gives the edit that an entry names, nil if none: of a Request that was
// released none is left.
func (r *Request) editAt(i int32) *edit {
	if i == 0 || int(i) > len(r.edits) {
		return nil
	}
	return &r.edits[i-1]
}

// touch makes AppendTo look into the owner, and gives its edit, a new one if it
// had none.
func (r *Request) touch(o owner) *edit {
	resource, scope := o.i, -1
	switch o.kind {
	case ofScope:
		scope = o.i
	case ofSpan, ofChild:
		scope = int(r.spans[o.i].scope)
	}
	if scope >= 0 {
		r.scopes[scope].touched = true
		resource = int(r.scopes[scope].resource)
	}
	r.resources[resource].touched = true

	at := r.editField(o)
	e := r.editAt(*at)
	if e == nil {
		r.edits = append(r.edits, edit{})
		*at = int32(len(r.edits))
		e = r.editAt(*at)
	}
	if o.kind == ofChild {
		return &r.ensureChild(e, o).edit
	}
	return e
}

// seek gives the last childEdit of what is in a span's bytes that does not stand
// behind o, as 1 + its index; 0 if there is none. It starts from where the last
// search ended if it can, so that going through a span's events costs no search
// each.
func (r *Request) seek(e *edit, o owner) int32 {
	i, next := int32(0), e.firstChild
	if f := r.finger; f != 0 {
		if c := &r.children[f-1]; int(c.span) == o.i && c.at <= o.at {
			i, next = f, c.next
		}
	}
	for next != 0 && r.children[next-1].at <= o.at {
		i, next = next, r.children[next-1].next
	}
	if i != 0 {
		r.finger = i
	}
	return i
}

// ensureChild gives the childEdit of o, a new one in its place if there is none.
// e is its span's edit.
func (r *Request) ensureChild(e *edit, o owner) *childEdit {
	if i := o.at - len(r.raw); i >= 0 {
		return &r.children[i]
	}
	before := r.seek(e, o)
	if before != 0 && r.children[before-1].at == o.at {
		return &r.children[before-1]
	}
	link := &e.firstChild
	if before != 0 {
		link = &r.children[before-1].next
	}
	inserted := childEdit{span: int32(o.i), num: o.num, at: o.at, next: *link}
	*link = int32(len(r.children) + 1)
	r.children = append(r.children, inserted)
	r.finger = int32(len(r.children))
	return &r.children[r.finger-1]
}

// addChild records that an event or a link is added to a span, behind all
// others of its kind. content must be the Request's to keep.
func (r *Request) addChild(span int, num uint32, content []byte) {
	e := r.touch(owner{kind: ofSpan, i: span})
	r.children = append(r.children, childEdit{span: int32(span), num: num, at: len(r.raw) + len(r.children), added: content})
	i := int32(len(r.children))
	if e.firstAdded == 0 {
		e.firstAdded = i
	} else {
		r.children[e.lastAdded-1].next = i
	}
	e.lastAdded = i
}
