package socket

import (
	"bytes"
	"strconv"
)

// maxHeadBytes is the largest size of a head that a handler writes. A longer text is passed
// on unchanged.
const maxHeadBytes = 64 << 10

const protocolName = "HTTP/"

var lineEnd, headEnd = []byte("\r\n"), []byte("\r\n\r\n")

// head collects the head of the response that a handler writes: the status line and the
// headers. It adds a header to it.
type head struct {
	name, value string // the header to add
	b           []byte // the bytes of the head so far
}

// add adds bytes that the handler has written. When the head is whole, add returns true, the
// head with the added header, and the bytes that follow the head. If the bytes are not a
// head of HTTP/1, or are too long, add returns true and the bytes unchanged.
func (h *head) add(p []byte) (first, rest []byte, whole bool) {
	h.b = append(h.b, p...)
	n := min(len(h.b), len(protocolName))
	if string(h.b[:n]) != protocolName[:n] || len(h.b) > maxHeadBytes {
		return h.b, nil, true
	}
	i := bytes.Index(h.b, headEnd)
	if i < 0 {
		return nil, nil, false
	}
	i += len(headEnd)
	return h.set(h.b[:i]), h.b[i:], true
}

// set returns a whole head with the header of h, in place of headers with the same name.
func (h *head) set(whole []byte) []byte {
	line, rest, _ := bytes.Cut(whole, lineEnd)
	out := append(bytes.Clone(line), "\r\n"+h.name+": "+h.value+"\r\n"...)
	for line := range bytes.SplitAfterSeq(rest, lineEnd) {
		if key, _, _ := bytes.Cut(line, []byte(":")); !bytes.EqualFold(key, []byte(h.name)) {
			out = append(out, line...)
		}
	}
	return out
}

// statusOf returns the status of a head that begins with a line such as "HTTP/1.1 101
// Switching Protocols". It returns 0 if the line has no status.
func statusOf(head []byte) int {
	line, _, _ := bytes.Cut(head, lineEnd)
	words := bytes.Fields(line)
	if len(words) < 2 || !bytes.HasPrefix(line, []byte(protocolName)) {
		return 0
	}
	status, err := strconv.Atoi(string(words[1]))
	if err != nil || status < 100 || status > 999 {
		return 0
	}
	return status
}
