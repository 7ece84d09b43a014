package relay_test

import (
	"testing"

	"github.com/tinylib/msgp/msgp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/relay"
)

// compactBatch returns a span in the compact form of the Python package.
func compactBatch(name string) []byte {
	b := msgp.AppendArrayHeader(nil, 2)
	b = msgp.AppendArrayHeader(msgp.AppendInt(b, 1), 1)
	b = msgp.AppendNil(msgp.AppendNil(msgp.AppendArrayHeader(b, 3)))
	b = msgp.AppendArrayHeader(msgp.AppendArrayHeader(b, 1), 5)
	for range 4 {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(msgp.AppendArrayHeader(b, 1), 17)
	b = msgp.AppendBytes(msgp.AppendBytes(b, []byte("0123456789abcdef")), []byte("01234567"))
	b = msgp.AppendNil(msgp.AppendInt(msgp.AppendNil(b), 1))
	b = msgp.AppendString(b, name)
	for range 3 {
		b = msgp.AppendInt(b, 1)
	}
	b = msgp.AppendNil(msgp.AppendInt(msgp.AppendNil(b), 0))
	b = msgp.AppendNil(msgp.AppendNil(b))
	for range 3 {
		b = msgp.AppendInt(b, 0)
	}
	return b
}

func TestCompactForm(t *testing.T) {
	r := startRig(t, "record")
	conn := r.dial(t)
	put := func(request []byte) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), relay.HeaderWait, relay.WaitDelivered)
		var response []byte
		return conn.Invoke(ctx, "/servetrace.relay.v1.Spans/Put", &request, &response, grpc.ForceCodecV2(rawCodec{}))
	}
	if err := put(compactBatch("compact-0")); err != nil {
		t.Fatal(err)
	}
	r.wantSpans(t, "compact", 1)
	err := put([]byte("not in this form"))
	if want := "compact form: batch: msgp: attempted to decode type \"int\" with method for \"array\""; status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
