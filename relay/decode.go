package relay

import (
	"bytes"
	"fmt"
	"io"
	"runtime"

	"github.com/klauspost/compress/gzip"

	"github.com/servetrace/servetrace/internal/otlpjson"
)

// maxDecodes bounds the requests that are decompressed or converted at a time.
const maxDecodes = 4

// decoder decompresses and converts requests, only a few at a time, because each may
// need a multiple of its size. It is the decompressor of a gRPC server. Safe for
// concurrent use.
type decoder struct {
	most  int64 // bytes of a decompressed request
	slots chan struct{}
}

func newDecoder(most int) *decoder {
	return &decoder{most: int64(most), slots: make(chan struct{}, min(maxDecodes, runtime.GOMAXPROCS(0)))}
}

// Type returns the name of the compression.
func (*decoder) Type() string { return "gzip" }

// Do returns the decompressed bytes of r. If they are too many, it returns one byte more
// than is allowed.
func (d *decoder) Do(r io.Reader) ([]byte, error) {
	d.slots <- struct{}{}
	defer func() { <-d.slots }()
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(io.LimitReader(z, d.most+1)); err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return out.Bytes(), nil
}

// fromJSON converts a request of OTLP/JSON to protobuf.
func (d *decoder) fromJSON(document []byte) ([]byte, error) {
	d.slots <- struct{}{}
	defer func() { <-d.slots }()
	data, _, err := otlpjson.ToProto(document)
	return data, err
}
