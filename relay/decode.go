package relay

import (
	"bytes"
	"context"
	"io"
	"runtime"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/otlpjson"
	"github.com/servetrace/servetrace/internal/wire"
)

const (
	// maxUnzips bounds the number of requests that are decompressed at the same time. On a
	// machine with fewer CPUs, the bound is the number of CPUs, but at least minUnzips: a sender
	// with large requests must not block all other senders.
	maxUnzips = 4
	minUnzips = 2
	// maxWindow bounds the memory of a zstd decoder, in bytes. RFC 8878 recommends that a
	// decoder supports 8 MiB.
	maxWindow = 8 << 20
	// maxJSONBytes and maxJSONObjects bound a request in JSON. A decoded object needs
	// hundreds of bytes, even if it is empty.
	maxJSONBytes   = 4 << 20
	maxJSONObjects = 1 << 18
)

// gate bounds the number of requests that are decoded at the same time.
type gate chan struct{}

// enter blocks until a place is free, or ctx ends. It returns a function that frees the
// place. The error is a gRPC status. ctx must end when the connection is closed, so that a
// request of a closed connection does not keep its memory while it waits.
func (g gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, status.Error(codes.Unavailable, "too many requests are being decoded; send the request again")
	}
}

// decoder decompresses and converts requests. Only a few requests are decoded at a time,
// because each may need several times its size of memory. It is the decompressor of a
// gRPC server. Safe for concurrent use.
type decoder struct {
	most int // largest size of a decoded request, in bytes
	// unzipping is for requests that are compressed or in the compact form, and converting
	// for requests in JSON.
	unzipping, converting gate
}

func newDecoder(most int) *decoder {
	unzips := min(maxUnzips, max(minUnzips, runtime.GOMAXPROCS(0)))
	return &decoder{most: most, unzipping: make(gate, unzips), converting: make(gate, 1)}
}

// Type returns the name of the compression that gRPC passes to Do.
func (*decoder) Type() string { return "gzip" }

// Do checks that a message with the compressed flag begins like gzip, and returns it as it
// is. Do cannot wait for a place in a gate, because it does not have the context of the
// call. So grpcService.decompressed and codec decompress the message later.
func (*decoder) Do(r io.Reader) ([]byte, error) {
	message, err := io.ReadAll(r)
	if err == nil && !isGzip(message) {
		err = gzip.ErrHeader
	}
	return message, err
}

// isGzip reports whether a message begins like gzip. The relay decompresses each such
// message. It cannot look at the compressed flag, because gRPC shows the flag only to its
// own code: a codec gets the bytes alone, and Do is called without the call. This makes a
// difference only for a message that is invalid anyway, because no protobuf message begins
// like gzip: wire type 7 does not exist.
func isGzip(message []byte) bool { return bytes.HasPrefix(message, []byte{0x1f, 0x8b}) }

// maxHealthBytes bounds a request of grpc.health.v1 after decompression.
const maxHealthBytes = 4 << 10

// codec is the codec of the relay's gRPC server. It decompresses each message, except if the
// receiver is a wire.Lent: grpcService.decompressed decompresses such a message.
type codec struct{ wire.Codec }

// Unmarshal decodes a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	_, lent := v.(*wire.Lent)
	if lent {
		return c.Codec.Unmarshal(data, v)
	}
	if message := data.Materialize(); isGzip(message) {
		z, err := gzip.NewReader(bytes.NewReader(message))
		if err != nil {
			return err
		}
		plain, err := io.ReadAll(io.LimitReader(z, maxHealthBytes))
		if err != nil {
			return err
		}
		data = mem.BufferSlice{mem.SliceBuffer(plain)}
	}
	return c.Codec.Unmarshal(data, v)
}

// decompress returns the decompressed bytes of r. The encoding is gzip or zstd. If there
// are too many bytes, it returns one byte more than allowed. The error is a gRPC status.
func (d *decoder) decompress(ctx context.Context, encoding string, r io.Reader) ([]byte, error) {
	leave, err := d.unzipping.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var out bytes.Buffer
	read := func(z io.Reader) error {
		_, err := out.ReadFrom(io.LimitReader(z, int64(d.most)+1))
		return err
	}
	if encoding == "zstd" {
		err = readZstd(r, read)
	} else {
		var z *gzip.Reader
		if z, err = gzip.NewReader(r); err == nil {
			err = read(z)
		}
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %v", encoding, err)
	}
	return out.Bytes(), nil
}

// readZstd calls read with the decompressed bytes of r. The decoder has no goroutines.
func readZstd(r io.Reader, read func(io.Reader) error) error {
	// NewReader decompresses all of a bytes.Buffer at once, so it gets only the method Read.
	z, err := zstd.NewReader(struct{ io.Reader }{r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer z.Close()
	return read(z)
}

// fromJSON converts a request of OTLP/JSON to protobuf. The error is a gRPC status.
func (d *decoder) fromJSON(ctx context.Context, document []byte) ([]byte, error) {
	if len(document) > maxJSONBytes {
		return nil, status.Errorf(codes.ResourceExhausted, "the request has %d bytes, more than the %d that are allowed in JSON", len(document), maxJSONBytes)
	}
	if n := bytes.Count(document, []byte("{")); n > maxJSONObjects { // texts may contain braces, too
		return nil, status.Errorf(codes.ResourceExhausted, "the request has %d opening braces, more than the %d that are allowed in JSON", n, maxJSONObjects)
	}
	leave, err := d.converting.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	data, _, err := otlpjson.ToProto(document)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return data, nil
}
