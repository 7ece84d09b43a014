package relay

import (
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/pywire"
)

// compactService has the method Put, which is Export for spans in the compact form of
// package pywire. The Python package uses it.
const (
	compactService = "servetrace.relay.v1.Spans"
	putMethod      = "/" + compactService + "/Put"
)

// converters holds *pywire.Converter.
var converters = sync.Pool{New: func() any { return new(pywire.Converter) }}

// expand returns the OTLP request of a call's message, and a function that releases it.
// The error is a gRPC status.
func expand(stream grpc.ServerStream, message []byte, maxBytes int) ([]byte, func(), error) {
	if method, _ := grpc.MethodFromServerStream(stream); method != putMethod {
		return message, func() {}, nil
	}
	c := converters.Get().(*pywire.Converter) //nolint:forcetypeassert // nothing else is in it
	release := func() { converters.Put(c) }
	request, err := c.Convert(message, maxBytes)
	if err != nil {
		release()
		code := codes.InvalidArgument
		if errors.Is(err, pywire.ErrTooLarge) {
			code = codes.ResourceExhausted // without RetryInfo: the sender splits it
		}
		return nil, nil, status.Errorf(code, "compact form: %v", err)
	}
	return request, release, nil
}
