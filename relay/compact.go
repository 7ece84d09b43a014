package relay

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/pywire"
)

// typeCompact is the media type of spans in the compact form of package pywire. The
// Python package sends it. The answers are in JSON.
const typeCompact = "application/vnd.servetrace.spans"

// converters is a pool of values of type *pywire.Converter, which keep their buffers.
var converters = sync.Pool{New: func() any { return new(pywire.Converter) }}

// expand returns the OTLP request of a body in the compact form, and a function that
// releases it. The error is a gRPC status.
func (d *decoder) expand(ctx context.Context, body []byte) ([]byte, func(), error) {
	leave, err := d.unzipping.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	c := converters.Get().(*pywire.Converter) //nolint:forcetypeassert // the pool has only values of this type
	release := func() { converters.Put(c) }
	request, err := c.Convert(body, d.most)
	if err != nil {
		release()
		code := codes.InvalidArgument
		if errors.Is(err, pywire.ErrTooLarge) {
			code = codes.ResourceExhausted // it has no RetryInfo, so the sender splits the request
		}
		return nil, nil, status.Errorf(code, "compact form: %v", err)
	}
	return request, release, nil
}
