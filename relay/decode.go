package relay

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/servetrace/servetrace/internal/otlpjson"
)

const (
	// maxUnzips bounds the requests that are decompressed at a time.
	maxUnzips = 4
	// maxJSONBytes bounds a request in JSON. Decoded, it may need forty times as much.
	maxJSONBytes = 4 << 20
)

// decoder decompresses requests, a few at a time, and converts them, one at a time,
// because each may need a multiple of its size. It is the decompressor of a gRPC server.
// Safe for concurrent use.
type decoder struct {
	most       int64         // bytes of a decompressed request
	unzipping  chan struct{} // a semaphore
	converting sync.Mutex
}

func newDecoder(most int) *decoder {
	return &decoder{most: int64(most), unzipping: make(chan struct{}, min(maxUnzips, runtime.GOMAXPROCS(0)))}
}

// Type returns the name of the compression.
func (*decoder) Type() string { return "gzip" }

// Do returns the decompressed bytes of r. If they are too many, it returns one byte more
// than is allowed.
func (d *decoder) Do(r io.Reader) ([]byte, error) {
	d.unzipping <- struct{}{}
	defer func() { <-d.unzipping }()
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
	d.converting.Lock()
	defer d.converting.Unlock()
	data, _, err := otlpjson.ToProto(document)
	return data, err
}
