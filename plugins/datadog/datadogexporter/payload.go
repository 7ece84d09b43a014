package datadogexporter

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// payload is one request to the agent, not yet sent.
type payload struct {
	path   string
	header http.Header
	body   []byte
	chunks int
}

// maxPayload is what dd-trace-go sends at most, in bytes: an agent takes 25 MB,
// what stands in front of it often less.
const maxPayload = 9_500_000

// merge joins payloads that were cut only because the tracer's worker was not
// done: then what is encoded together arrives together or not at all. Protocol
// 0.4 is an array of chunks; 1.0, which shares its texts, can not be joined.
func merge(payloads []payload) ([]payload, error) {
	var merged []payload
	for _, next := range payloads {
		last := len(merged) - 1
		if last < 0 || next.path == tracesPathV1 || len(merged[last].body)+len(next.body) > maxPayload {
			merged = append(merged, next)
			continue
		}
		joined, err := join(merged[last], next)
		if err != nil {
			return nil, err
		}
		merged[last] = joined
	}
	return merged, nil
}

func join(a, b payload) (payload, error) {
	n, first, errFirst := msgp.ReadArrayHeaderBytes(a.body)
	m, second, errSecond := msgp.ReadArrayHeaderBytes(b.body)
	if err := errors.Join(errFirst, errSecond); err != nil || int(n) != a.chunks || int(m) != b.chunks {
		return payload{}, fmt.Errorf("what the Datadog tracer encodes is no array of %d and %d chunks, but of %d and %d: %w",
			a.chunks, b.chunks, n, m, errors.Join(errNotEncoded, err))
	}
	body := make([]byte, 0, len(a.body)+len(b.body)+msgp.ArrayHeaderSize)
	body = append(append(msgp.AppendArrayHeader(body, n+m), first...), second...)
	header := a.header.Clone()
	header.Set(headerTraceCount, strconv.Itoa(a.chunks+b.chunks))
	return payload{a.path, header, body, a.chunks + b.chunks}, nil
}
