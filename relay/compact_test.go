package relay_test

import (
	"net/http"
	"testing"

	"github.com/tinylib/msgp/msgp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"

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
	r := startRig(t, "record", overHTTP)
	for _, c := range []struct {
		name, body, answer string
		status             int
	}{
		{"batch", string(compactBatch("compact-0")), "{}", http.StatusOK},
		{"empty", "", "{}", http.StatusOK},
		{"malformed", "not in this form", "compact form: batch: msgp: attempted to decode type \"int\" with method for \"array\"", http.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, body := r.post(t, "/v1/traces", "application/vnd.servetrace.spans", []byte(c.body), relay.HeaderWait, relay.WaitDelivered)
			answer := string(body)
			if got.StatusCode != http.StatusOK {
				var told statuspb.Status
				if err := protojson.Unmarshal(body, &told); err != nil {
					t.Fatal(err)
				}
				answer = told.Message
			}
			if got.StatusCode != c.status || answer != c.answer || got.Header.Get("Content-Type") != typeJSON {
				t.Errorf("answer %d %s, want %d %s", got.StatusCode, answer, c.status, c.answer)
			}
		})
	}
	r.wantSpans(t, "compact", 1)
}
