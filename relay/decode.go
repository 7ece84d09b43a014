package relay

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/otlpjson"
)

const (
	// maxUnzips bounds the requests that are decompressed at a time.
	maxUnzips = 4
	// maxWindow bounds the memory of a zstd decoder. A decoder must support 8 MiB.
	maxWindow = 8 << 20
	// maxJSONBytes and maxJSONObjects bound a request in JSON. Decoded, an object needs
	// hundreds of bytes, even if it is empty.
	maxJSONBytes   = 4 << 20
	maxJSONObjects = 1 << 18
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

// Do is decompress for gzip.
func (d *decoder) Do(r io.Reader) ([]byte, error) { return d.decompress("gzip", r) }

// decompress returns the decompressed bytes of r. The encoding is gzip or zstd. If they are
// too many, it returns one byte more than is allowed.
func (d *decoder) decompress(encoding string, r io.Reader) ([]byte, error) {
	d.unzipping <- struct{}{}
	defer func() { <-d.unzipping }()
	var out bytes.Buffer
	read := func(z io.Reader) error {
		_, err := out.ReadFrom(io.LimitReader(z, d.most+1))
		return err
	}
	var err error
	if encoding == "zstd" {
		err = readZstd(r, read)
	} else {
		var z *gzip.Reader
		if z, err = gzip.NewReader(r); err == nil {
			err = read(z)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", encoding, err)
	}
	return out.Bytes(), nil
}

// readZstd calls read with the decompressed bytes of r. The decoder has no goroutines.
func readZstd(r io.Reader, read func(io.Reader) error) error {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer z.Close()
	return read(z)
}

// fromJSON converts a request of OTLP/JSON to protobuf. The error is a gRPC status.
func (d *decoder) fromJSON(document []byte) ([]byte, error) {
	if len(document) > maxJSONBytes {
		return nil, status.Errorf(codes.ResourceExhausted, "the request has %d bytes, more than the %d that are allowed in JSON", len(document), maxJSONBytes)
	}
	if n := bytes.Count(document, []byte("{")); n > maxJSONObjects { // or texts with braces
		return nil, status.Errorf(codes.ResourceExhausted, "the request has %d opening braces, more than the %d that are allowed in JSON", n, maxJSONObjects)
	}
	d.converting.Lock()
	defer d.converting.Unlock()
	data, _, err := otlpjson.ToProto(document)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return data, nil
}
