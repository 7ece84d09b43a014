package host_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/supervise"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// described answers Describe with bytes, as a plugin in any language may. Bytes that are
// no message are a gRPC error.
type described struct{ data []byte }

func (d described) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if err := proto.Unmarshal(d.data, reply.(proto.Message)); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (described) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams here")
}

// wantBoundedDescription checks the host's result of an answer to Describe: limits within
// bounds, only declared variables, and no text that is too long for a log.
func wantBoundedDescription(t *testing.T, data []byte) {
	t.Helper()
	environ := []string{"PATH=/bin", "DD_KEY=canary", "OTEL_X=1", "PLUGIN_PROTOCOL_VERSIONS=1", "BAD_TEXT=\xff"}
	h, err := host.New(host.Config{Plugins: "/no/plugin", Environ: environ}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	h.Supervisor().Connect = func(context.Context, *supervise.Settings, supervise.Plan, *slog.Logger) (supervise.Peer, error) {
		return &describedPlugin{newFakePlugin(nil), described{data}}, nil
	}
	i := h.InspectOnly(t.Context())
	if i.Err != nil && len(i.Err.Error()) > 4<<10 {
		t.Errorf("an error of %d bytes", len(i.Err.Error()))
	}
	if !i.Described {
		return
	}
	const most = 1<<31 - 1
	if s, b, c := i.MaxBatchSpans, i.MaxBatchBytes, i.MaxConcurrency; s < 1 || b < 1 || c < 1 || s > most || b > most || c > 64 {
		t.Errorf("limits of %d spans, %d bytes, %d calls", s, b, c)
	}
	for _, v := range i.Variables {
		if v.Name == "BAD_TEXT" || strings.HasPrefix(v.Name, "PLUGIN_") {
			t.Errorf("variable %s is granted to a plugin that declares %q", v.Name, i.About.Patterns)
		}
	}
	texts := append([]string{i.About.Name, i.About.Version, i.About.SDK, i.About.Language, i.About.Description}, i.About.Patterns...)
	for _, text := range texts {
		if len(text) > 2<<10 || !utf8.ValidString(text) {
			t.Errorf("a text of %d bytes is shown, or one that is no UTF-8: %.20q", len(text), text)
		}
	}
}

// describedPlugin is a process with that answer.
type describedPlugin struct {
	*fakePlugin
	described
}

func (d describedPlugin) Conn() grpc.ClientConnInterface { return d.described }

// Invoke is the plugin's.
func (d describedPlugin) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return d.described.Invoke(ctx, method, args, reply, opts...)
}

func (d describedPlugin) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return d.described.NewStream(ctx, desc, method, opts...)
}

func message(t testing.TB, about *pluginv1.DescribeResponse) []byte {
	t.Helper()
	data, err := proto.Marshal(about)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDescriptionsThatAreTooMuch: answers that fuzzing does not find by itself.
func TestDescriptionsThatAreTooMuch(t *testing.T) {
	huge := strings.Repeat("é", 1<<18)
	for name, data := range map[string][]byte{
		"giant texts": message(t, &pluginv1.DescribeResponse{
			Name: huge, Version: huge, Description: huge, Sdk: &pluginv1.Sdk{Name: huge, Version: huge, Language: huge},
		}),
		"giant pattern":         message(t, &pluginv1.DescribeResponse{EnvPatterns: []string{"A" + strings.Repeat("B", 1<<15)}}),
		"giant pattern, wrong":  message(t, &pluginv1.DescribeResponse{EnvPatterns: []string{huge}}),
		"thousands of patterns": message(t, &pluginv1.DescribeResponse{EnvPatterns: slices.Repeat([]string{"DD_*", "NO_SUCH"}, 5000)}),
		"largest limits": message(t, &pluginv1.DescribeResponse{Limits: &pluginv1.Limits{
			MaxBatchSpans: 1<<32 - 1, MaxBatchBytes: 1<<32 - 1, MaxConcurrency: 1<<32 - 1,
		}}),
		"smallest limits": message(t, &pluginv1.DescribeResponse{Limits: &pluginv1.Limits{MaxBatchSpans: 1, MaxBatchBytes: 1, MaxConcurrency: 1}}),
		"unknown kind":    message(t, &pluginv1.DescribeResponse{Kind: 4711}),
		"no UTF-8":        protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("\xff\xfe")),
		"negative limits": bytes.Join([][]byte{
			{0x2a, 0x0b, 0x08}, protowire.AppendVarint(nil, 1<<64-1), // as a signed field has -1
		}, nil),
	} {
		t.Run(name, func(t *testing.T) { wantBoundedDescription(t, data) })
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(message(f, &pluginv1.DescribeResponse{
		Name: "x", Version: "1", Sdk: &pluginv1.Sdk{Name: "go", Version: "1", Language: "go"}, Kind: pluginv1.Kind_KIND_EXPORTER,
		Limits: &pluginv1.Limits{MaxBatchSpans: 10, MaxBatchBytes: 1 << 20, MaxConcurrency: 2}, EnvPatterns: []string{"DD_*", "OTEL_X"},
	}))
	f.Add([]byte("\x0a\x02\xff\xfe"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 4<<10 { // a longer one may well show more
			wantBoundedDescription(t, data)
		}
	})
}
