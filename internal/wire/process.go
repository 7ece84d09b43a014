package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// A ProcessField is the number of a field of ProcessRequest or ProcessResponse.
type ProcessField protowire.Number

// The fields of ProcessRequest and ProcessResponse. If a response has neither of its fields, the
// batch is unchanged.
const (
	RequestBatch  ProcessField = 1
	ResponsePatch ProcessField = 1
	ResponseBatch ProcessField = 2
)

// ProcessHead returns the beginning of a message that has only the field f. The content of the
// field, n bytes, must follow.
func ProcessHead(f ProcessField, n int) []byte {
	head := protowire.AppendTag(nil, protowire.Number(f), protowire.BytesType)
	return protowire.AppendVarint(head, uint64(n))
}

// ReadProcess returns the last field of an encoded ProcessRequest or ProcessResponse whose number
// is in fields. field is 0 if there is no such field. content refers to message.
func ReadProcess(message []byte, fields ...ProcessField) (field ProcessField, content []byte, err error) {
	for rest := message; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return 0, nil, fmt.Errorf("malformed message at byte %d: %w", len(message)-len(rest), protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(num, typ, rest[n:])
		if size < 0 {
			return 0, nil, fmt.Errorf("malformed message at byte %d: %w", len(message)-len(rest), protowire.ParseError(size))
		}
		for _, f := range fields {
			if num == protowire.Number(f) && typ == protowire.BytesType {
				field = f
				content, _ = protowire.ConsumeBytes(rest[n:])
			}
		}
		rest = rest[n+size:]
	}
	return field, content, nil
}
