package spool

import (
	"encoding/binary"
	"encoding/json"
	"errors"
)

// The first byte of a record is its kind. A record without bytes has no meaning, see
// segment.resume.
const (
	kindBatch = 'b' // the length of the description, the description (a Batch) in JSON, and the data
	kindMarks = 'm' // a list of marks in JSON
)

var errRecord = errors.New("the record is damaged")

// mark is the note that an exporter has settled some spans of a batch.
type mark struct {
	seg      *segment
	Exporter string `json:"exporter"`
	Number   uint64 `json:"number"`
	From     int    `json:"from"`
	Spans    int    `json:"spans"`
}

// batchRecord returns the record of a batch.
func batchRecord(b Batch, data []byte) ([]byte, error) {
	head, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	dst := append(make([]byte, 0, 1+binary.MaxVarintLen64+len(head)+len(data)), kindBatch)
	dst = binary.AppendUvarint(dst, uint64(len(head)))
	return append(append(dst, head...), data...), nil
}

// marksRecord returns the record of some marks.
func marksRecord(list []mark) ([]byte, error) {
	text, err := json.Marshal(list)
	return append([]byte{kindMarks}, text...), err
}

// parseBatch parses the record of a batch, without its first byte, the kind.
func parseBatch(record []byte) (b Batch, data []byte, err error) {
	size, n := binary.Uvarint(record)
	if n <= 0 || size > uint64(len(record)-n) {
		return Batch{}, nil, errRecord
	}
	head, data := record[n:][:size], record[n:][size:]
	if json.Unmarshal(head, &b) != nil || b.Spans <= 0 || b.Spans > len(record) {
		return Batch{}, nil, errRecord
	}
	return b, data, nil
}

// mostSpans bounds the counts in a mark. A damaged mark could have any number, and
// there is no data to compare it with.
const mostSpans = 1 << 30

// parseMarks parses a record of marks, without its first byte, the kind.
func parseMarks(record []byte) (list []mark, err error) {
	if json.Unmarshal(record, &list) != nil {
		return nil, errRecord
	}
	for _, m := range list {
		if m.From < 0 || m.Spans < 0 || m.From > mostSpans || m.Spans > mostSpans {
			return nil, errRecord
		}
	}
	return list, nil
}
