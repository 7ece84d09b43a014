package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// canary is the attribute that a processor removes from each span.
const canary = "canary"

// runProcessor is a processor on go-plugin's own server. It adds its suffix to the name of
// each span and removes the attribute canary. Names with the prefixes below have other
// effects. A configuration {"answer": "whole"} makes it answer with whole batches, and
// {"answer": "unchanged"} without changes.
func runProcessor() {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: 1, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{1: {"traces": processorPlugin{}}},
		GRPCServer:       func(opts []grpc.ServerOption) *grpc.Server { return grpc.NewServer(opts...) },
	})
}

type processorPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (processorPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	p := &processorServer{}
	pluginv1.RegisterLifecycleServer(s, p)
	pluginv1.RegisterProcessorServer(s, p)
	return nil
}

func (processorPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is no client")
}

type processorServer struct {
	pluginv1.UnimplementedLifecycleServer
	pluginv1.UnimplementedProcessorServer
	config struct{ Suffix, Answer, Late, Slow string }
}

func (*processorServer) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	return &pluginv1.DescribeResponse{Name: "test-processor", Kind: pluginv1.Kind_KIND_PROCESSOR}, nil
}

func (p *processorServer) Configure(_ context.Context, r *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	if len(r.GetConfig()) > 0 {
		if err := json.Unmarshal(r.GetConfig(), &p.config); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	if late, err := time.ParseDuration(p.config.Late); err == nil {
		<-time.After(late)
	}
	return &pluginv1.ConfigureResponse{}, nil
}

func (*processorServer) Flush(context.Context, *pluginv1.FlushRequest) (*pluginv1.FlushResponse, error) {
	return &pluginv1.FlushResponse{}, nil
}

func (*processorServer) Shutdown(context.Context, *pluginv1.ShutdownRequest) (*pluginv1.ShutdownResponse, error) {
	return &pluginv1.ShutdownResponse{}, nil
}

// Process fails or changes a batch as the names of its spans demand.
func (p *processorServer) Process(ctx context.Context, r *pluginv1.ProcessRequest) (*pluginv1.ProcessResponse, error) {
	if slow, err := time.ParseDuration(p.config.Slow); err == nil {
		<-time.After(slow)
	}
	request, err := otlpwire.Parse(r.GetBatch())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	defer request.Release()
	filtered := 0
	for span := range request.Spans() {
		name := span.Name()
		prefix, _, _ := strings.Cut(name, "-")
		switch prefix {
		case "drop": // on purpose, and says so
			span.Drop()
			filtered++
		case "lose": // and does not say so
			span.Drop()
		case "refuse":
			return nil, status.Error(codes.InvalidArgument, "no such span")
		case "garbage":
			return &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Batch{Batch: []byte("\x0a\xff")}}, nil
		case "double":
			return &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Batch{Batch: append(r.GetBatch(), r.GetBatch()...)}}, nil
		case "beyond":
			patch := &pluginv1.Patch{Splices: []*pluginv1.Splice{{Keep: 1 << 30}}}
			return &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Patch{Patch: patch}}, nil
		case "spoil":
			patch := &pluginv1.Patch{Splices: []*pluginv1.Splice{{Keep: uint32(len(r.GetBatch())), Insert: []byte("\x0a")}}}
			return &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Patch{Patch: patch}}, nil
		case "poison":
			if strings.HasPrefix(name, "poison-for") && !strings.Contains(name, "poison-for"+p.config.Suffix) {
				break
			}
			os.Exit(3)
		default:
			span.SetName(name + p.config.Suffix)
			span.DeleteAttribute(canary)
		}
	}
	if filtered > 0 {
		if err := grpc.SetTrailer(ctx, metadata.Pairs(wire.MetaFiltered, fmt.Sprintf("sampler=%d", filtered))); err != nil {
			return nil, err
		}
	}
	switch p.config.Answer {
	case "unchanged":
		return &pluginv1.ProcessResponse{}, nil
	case "whole":
		return &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Batch{Batch: request.AppendTo(nil)}}, nil
	}
	patch := new(pluginv1.Patch)
	if err := proto.Unmarshal(request.AppendPatch(nil), patch); err != nil {
		return nil, err
	}
	return &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Patch{Patch: patch}}, nil
}

// writeBytes is an exporter that appends each batch to a file, as it is. A name with venom
// and the path of the executable crashes it.
func writeBytes() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "sink",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
				if bytes.Contains(b.Bytes(), []byte("venom-"+os.Args[0])) {
					os.Exit(3)
				}
				f, err := os.OpenFile(os.Args[0]+".bytes", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					return err
				}
				_, err = f.Write(b.Bytes())
				return errors.Join(err, f.Close())
			}), nil
		},
	})
}
