package otlpexporter

import (
	"bytes"
	"slices"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// ways returns exporters for each protocol and compression, each with a function that
// returns the arrived requests.
func ways(t *testing.T) map[string]func() (pluginsdk.Exporter, func() [][]byte) {
	t.Helper()
	all := map[string]func() (pluginsdk.Exporter, func() [][]byte){}
	for _, compression := range []string{"none", "gzip"} {
		all["HTTP "+compression] = func() (pluginsdk.Exporter, func() [][]byte) {
			back := receive(t, nil)
			return open(t, env(EnvEndpoint+"="+back.URL, EnvCompression+"="+compression)), func() [][]byte {
				var bodies [][]byte
				for _, r := range back.all() {
					bodies = append(bodies, r.body)
				}
				return bodies
			}
		}
		all["gRPC "+compression] = func() (pluginsdk.Exporter, func() [][]byte) {
			back := serveGRPC(t, nil)
			return open(t, env(EnvProtocol+"=grpc", EnvEndpoint+"=http://"+back.address, EnvCompression+"="+compression)),
				func() [][]byte { return back.bodies }
		}
	}
	return all
}

// field is one that is written by hand.
func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// TestNothingIsDecoded: bytes that no decoder accepts pass unchanged, and so do bytes
// that a decoder would drop or rewrite.
func TestNothingIsDecoded(t *testing.T) {
	const resourceSpans, scopeSpans, spans, name, unknown = 1, 2, 2, 5, 1900
	odd := protowire.AppendVarint(protowire.AppendTag(nil, unknown, protowire.VarintType), 7)
	padded := append(protowire.AppendTag(nil, name, protowire.BytesType), 0x83, 0x80, 0x00, 'a', 'b', 'c') // a length in 3 bytes
	span := slices.Concat(padded, odd, field(name, []byte("\xff\xfe")), field(name, []byte("twice")))
	broken := field(spans, []byte{0xff, 0xff, 0xff}) // not a span of anything
	for what, request := range map[string][]byte{
		"unknown fields at each level": field(resourceSpans, slices.Concat(odd, field(scopeSpans, slices.Concat(odd, field(spans, span))), field(unknown, odd))),
		"broken spans":                 field(resourceSpans, field(scopeSpans, broken)),
		"several resources":            slices.Concat(field(resourceSpans, odd), field(resourceSpans, nil), field(resourceSpans, field(scopeSpans, broken))),
		"nonsense":                     field(resourceSpans, bytes.Repeat([]byte{0xff}, 1<<20)),
	} {
		if proto.Unmarshal(request, &tracepb.TracesData{}) == nil && what != "several resources" && what != "unknown fields at each level" {
			t.Fatalf("%s: a decoder takes it, so it proves nothing", what)
		}
		for way, start := range ways(t) {
			t.Run(way+"/"+what, func(t *testing.T) {
				e, arrived := start()
				if err := e.Export(t.Context(), pluginsdk.NewBatch(request)); err != nil {
					t.Fatal(err)
				}
				if got := arrived(); len(got) != 1 || !bytes.Equal(got[0], request) {
					t.Errorf("got %d requests, and not the same bytes", len(got))
				}
			})
		}
	}
}

// TestEditedBatches arrive as they were edited.
func TestEditedBatches(t *testing.T) {
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			e, arrived := start()
			b := pluginsdk.NewBatch(some(t, 3))
			for span := range b.Spans() {
				if span.SpanID()[0] == 2 {
					span.Drop()
					continue
				}
				span.SetName("edited")
			}
			if err := e.Export(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			var got tracepb.TracesData
			if err := proto.Unmarshal(arrived()[0], &got); err != nil {
				t.Fatal(err)
			}
			list := got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
			if len(list) != 2 || list[0].GetName() != "edited" || list[1].GetName() != "edited" || list[1].GetSpanId()[0] != 3 {
				t.Errorf("got %v", list)
			}
		})
	}
}

// TestNothingToSend: an empty batch makes no call.
func TestNothingToSend(t *testing.T) {
	back := receive(t, nil)
	e := open(t, env(EnvEndpoint+"="+back.URL))
	dropped := pluginsdk.NewBatch(some(t, 2))
	for span := range dropped.Spans() {
		span.Drop()
	}
	for _, b := range []*pluginsdk.Batch{pluginsdk.NewBatch(nil), dropped} {
		if err := e.Export(t.Context(), b); err != nil {
			t.Error(err)
		}
	}
	if n := len(back.all()); n != 0 {
		t.Errorf("%d requests came", n)
	}
	for _, broken := range [][]byte{{0xff}, {0x0a, 0x05, 1}} {
		err := e.Export(t.Context(), pluginsdk.NewBatch(broken))
		if err == nil || !pluginsdk.Final(err) {
			t.Errorf("%x: got %v, want a final error", broken, err)
		}
	}
}

// TestEnvironmentOfTheProcess: the environment of the process has no effect. Under a host
// it is equal to Setup's; in a larger program it may be for other parts.
func TestEnvironmentOfTheProcess(t *testing.T) {
	for _, name := range []string{"", "TRACES_"} {
		for setting, text := range map[string]string{
			"ENDPOINT": "https://elsewhere.invalid/x", "HEADERS": "x-key=theirs,x-more=theirs", "COMPRESSION": "gzip", "TIMEOUT": "1", "PROTOCOL": "http/json",
			"CERTIFICATE": newAuthority(t).file, "INSECURE": "false",
		} {
			t.Setenv("OTEL_EXPORTER_OTLP_"+name+setting, text)
		}
	}
	back, backGRPC := receive(t, nil), serveGRPC(t, nil)
	if err := export(t, open(t, env(EnvEndpoint+"="+back.URL, EnvHeaders+"=x-key=ours"))); err != nil {
		t.Fatal(err)
	}
	if err := export(t, open(t, env(EnvProtocol+"=grpc", EnvEndpoint+"=http://"+backGRPC.address, EnvHeaders+"=x-key=ours"))); err != nil {
		t.Fatal(err)
	}
	got := back.last(t)
	if got.URL.Path != "/v1/traces" || got.Header.Get("X-Key") != "ours" || got.Header.Get("X-More") != "" ||
		got.Header.Get("Content-Encoding") != "" || got.Header.Get("Content-Type") != kindProto {
		t.Errorf("request is %s, %v", got.URL, got.Header)
	}
	if head := backGRPC.heads[0]; len(head.Get("x-key")) != 1 || head.Get("x-key")[0] != "ours" || len(head.Get("x-more")) != 0 {
		t.Errorf("metadata is %v", head)
	}
}
