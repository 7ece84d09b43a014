package serving_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
)

func TestGRPCConfigFromEnv(t *testing.T) {
	env := map[string]string{
		"SERVE_GRPC_HOST": "0.0.0.0", "SERVE_GRPC_PORT": "9001", "SERVE_GRPC_REQUEST_TIMEOUT": "1s",
		"SERVE_GRPC_MAX_MESSAGE_BYTES": "4096", "SERVE_GRPC_MAX_STREAMS": "7", "SERVE_GRPC_MAX_HEADER_BYTES": "2048",
		"SERVE_GRPC_STALL_TIMEOUT": "0s", "SERVE_GRPC_CONNECTION_TIMEOUT": "2s",
		"SERVE_GRPC_KEEPALIVE_TIME": "3s", "SERVE_GRPC_KEEPALIVE_MIN_TIME": "4s",
	}
	cfg, err := serving.ConfigFromEnv(func(name string) string { return env[name] })
	want := serving.GRPCConfig{
		Addr: "0.0.0.0:9001", RequestTimeout: time.Second, MaxMessageBytes: 4096, MaxStreams: 7, MaxHeaderBytes: 2048,
		StallTimeout: -1, ConnectionTimeout: 2 * time.Second, KeepaliveTime: 3 * time.Second, KeepaliveMinTime: 4 * time.Second,
	}
	if diff := cmp.Diff(want, cfg.GRPC); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	want = serving.GRPCConfig{
		Addr: "127.0.0.1:9000", MaxMessageBytes: 1<<31 - 1, MaxStreams: 1000, MaxHeaderBytes: 1 << 16, StallTimeout: time.Minute,
		ConnectionTimeout: 10 * time.Second, KeepaliveTime: time.Minute, KeepaliveMinTime: 10 * time.Second,
	}
	if diff := cmp.Diff(want, serving.Config{}.WithDefaults().GRPC); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestGRPCConfigFaults(t *testing.T) {
	bad := serving.GRPCConfig{
		Addr: "nowhere", RequestTimeout: -1, MaxMessageBytes: 1, MaxStreams: -1, MaxHeaderBytes: 1 << 30,
		ConnectionTimeout: -1, KeepaliveTime: -1, KeepaliveMinTime: -1,
	}
	want := `GRPC.Addr "nowhere": want host:port: address nowhere: missing port in address
GRPC.RequestTimeout -1ns: want zero or more
GRPC.ConnectionTimeout -1ns: want zero or more
GRPC.KeepaliveTime -1ns: want zero or more
GRPC.KeepaliveMinTime -1ns: want zero or more
GRPC.MaxMessageBytes 1: want 1024 to 2147483647
GRPC.MaxStreams -1: want 1 to 2147483647
GRPC.MaxHeaderBytes 1073741824: want 1024 to 16777216`
	err := serving.Config{GRPC: bad}.Validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
