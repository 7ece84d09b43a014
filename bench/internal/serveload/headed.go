package serveload

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const headerRequestID = "X-Request-Id"

// headedHandler adds a request id to each answer: the client's, or a new id.
func headedHandler(next func(w http.ResponseWriter, r *http.Request, requestID string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(headerRequestID)
		if id == "" {
			id = uuid.NewString()
		}
		w.Header().Set(headerRequestID, id)
		next(w, r, id)
	})
}

// withTrailer adds a request id to the trailer of each gRPC answer.
func withTrailer(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	id := ""
	if ids := metadata.ValueFromIncomingContext(ctx, "request_id"); len(ids) > 0 {
		id = ids[0]
	}
	if id == "" {
		id = uuid.NewString()
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("request_id", id)); err != nil {
		return nil, err
	}
	return handler(ctx, in)
}
