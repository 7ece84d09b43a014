package serveload

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/http"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// headed is what any server does that gives each request an id, and tells the client
// of it.
var headed = extras{http: withHeader, grpc: []grpc.ServerOption{grpc.UnaryInterceptor(withTrailer)}}

// drawID draws a UUIDv4 as ours does: fast, for it is a name and no secret.
func drawID() string {
	var id uuid.UUID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// withHeader has each answer carry the header that ours does.
func withHeader(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if id == "" {
			id = drawID()
		}
		w.Header()["X-Request-Id"] = []string{id}
		h.ServeHTTP(w, r)
	})
}

// withTrailer is the same over gRPC, where it is a trailer.
func withTrailer(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	id := ""
	if ids := metadata.ValueFromIncomingContext(ctx, "request_id"); len(ids) > 0 {
		id = ids[0]
	}
	if id == "" {
		id = drawID()
	}
	if err := grpc.SetTrailer(ctx, metadata.MD{"request_id": {id}}); err != nil {
		return nil, err
	}
	return handler(ctx, in)
}
