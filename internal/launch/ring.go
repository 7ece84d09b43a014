package launch

// ring keeps the end of what was written to it. It takes its memory as it
// fills, for most plugins print little.
type ring struct {
	size int    // most bytes kept
	buf  []byte // at most size long
	next int    // where the next byte goes, once buf is size long
}

// write appends p, at the cost of copying no more of it than is kept.
func (r *ring) write(p []byte) {
	if room := r.size - len(r.buf); room > 0 {
		n := min(room, len(p))
		r.buf = append(r.buf, p[:n]...)
		p = p[n:]
	}
	if len(p) > r.size {
		p = p[len(p)-r.size:]
	}
	for len(p) > 0 {
		n := copy(r.buf[r.next:], p)
		p = p[n:]
		r.next = (r.next + n) % r.size
	}
}

// bytes is a copy of what is kept, in order.
func (r *ring) bytes() []byte {
	kept := append(make([]byte, 0, len(r.buf)), r.buf[r.next:]...)
	return append(kept, r.buf[:r.next]...)
}
