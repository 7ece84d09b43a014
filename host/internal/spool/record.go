package spool

import (
	"encoding/binary"
	"errors"
	"time"
)

// The first byte of a record is its kind. The rest are variable-length integers, texts
// with their length, and the data. A record without bytes has no meaning, see
// segment.resume.
const (
	kindBatch = 'b' // number, spans, time, exporters, length of data, data
	kindMarks = 'm' // any number of: exporter, number, from, spans
)

var errRecord = errors.New("the record is damaged")

// mark records that an exporter has settled some spans of a batch.
type mark struct {
	seg      *segment
	exporter string
	number   uint64
	from     int
	spans    int
}

// batchRecord returns the record of a batch.
func batchRecord(b Batch, data []byte) []byte {
	dst := append(make([]byte, 0, len(data)+256), kindBatch)
	dst = binary.AppendUvarint(dst, b.Number)
	dst = binary.AppendUvarint(dst, uint64(b.Spans))
	dst = binary.AppendVarint(dst, b.Sealed.UnixNano())
	dst = binary.AppendUvarint(dst, uint64(len(b.Exporters)))
	for _, name := range b.Exporters {
		dst = appendText(dst, name)
	}
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...)
}

func appendMark(dst []byte, m mark) []byte {
	if len(dst) == 0 {
		dst = append(dst, kindMarks)
	}
	dst = appendText(dst, m.exporter)
	dst = binary.AppendUvarint(dst, m.number)
	dst = binary.AppendUvarint(dst, uint64(m.from))
	return binary.AppendUvarint(dst, uint64(m.spans))
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// parser reads the values of a record. After an error all values are zero.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	return take(p, v, n)
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.rest)
	return take(p, v, n)
}

func take[T any](p *parser, v T, n int) T {
	if n <= 0 {
		var zero T
		p.rest, p.bad = nil, true
		return zero
	}
	p.rest = p.rest[n:]
	return v
}

// count reads the length of a list, which has at least one byte for each member.
func (p *parser) count(most int) int {
	v := p.uvarint()
	if v > uint64(most) {
		p.rest, p.bad = nil, true
		return 0
	}
	return int(v)
}

func (p *parser) text() string {
	n := p.count(len(p.rest))
	if n > len(p.rest) { // the length took some bytes
		p.rest, p.bad = nil, true
		return ""
	}
	text := string(p.rest[:n])
	p.rest = p.rest[n:]
	return text
}

// parseBatch parses the record of a batch, without its kind.
func parseBatch(record []byte) (b Batch, data []byte, err error) {
	p := &parser{rest: record}
	b.Number = p.uvarint()
	b.Spans = p.count(len(p.rest))
	b.Sealed = time.Unix(0, p.varint())
	for range p.count(len(p.rest)) {
		b.Exporters = append(b.Exporters, p.text())
	}
	if size := p.count(len(p.rest)); p.bad || size != len(p.rest) || b.Spans == 0 {
		return Batch{}, nil, errRecord
	}
	return b, p.rest, nil
}

// mostSpans bounds the counts in marks. There is no data to check them against.
const mostSpans = 1 << 31

// parseMarks parses the record of marks, without its kind.
func parseMarks(record []byte) (list []mark, err error) {
	p := &parser{rest: record}
	for len(p.rest) > 0 {
		m := mark{exporter: p.text(), number: p.uvarint(), from: p.count(mostSpans), spans: p.count(mostSpans)}
		if p.bad {
			return list, errRecord
		}
		list = append(list, m)
	}
	return list, nil
}
