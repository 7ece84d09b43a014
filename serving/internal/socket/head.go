package socket

import (
	"bytes"
	"strconv"
)

// maxHeadBytes bounds the head of a response that a handler writes.
const maxHeadBytes = 64 << 10

const protocolName = "HTTP/"

var lineEnd, headEnd = []byte("\r\n"), []byte("\r\n\r\n")

// head gathers the head of the response that a handler writes, to set a header in it.
type head struct {
	name, value string
	b           []byte
}

// add adds bytes that the handler has written. Once the head is whole, add returns it,
// with the header set, and the bytes that follow it. Bytes that are no head of HTTP/1, or
// too long for a head, are returned as they are.
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

// set returns a whole head with the header set. It replaces headers with the same name.
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

// statusOf returns the status of a head, such as "HTTP/1.1 101 Switching Protocols"; 0 if
// it has none.
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
