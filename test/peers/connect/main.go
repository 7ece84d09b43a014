// Command connect is the server under test of Connect's conformance suite: the
// suite's own implementation of its service for grpc-go, served by servetrace,
// or with -bare by grpc-go alone.
//
//	connect [-bare]
//
// The suite starts the command, writes a ServerCompatRequest to its standard
// input, reads a ServerCompatResponse with the address from its standard
// output, and ends it with SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"connectrpc.com/conformance/internal"
	"connectrpc.com/conformance/internal/app/grpcserver"
	conformancev1 "connectrpc.com/conformance/internal/gen/proto/go/connectrpc/conformance/v1"

	"github.com/servetrace/servetrace/serving"
)

// patience bounds the shutdown: the suite waits for the end of the process.
const patience = 5 * time.Second

func main() {
	bare := flag.Bool("bare", false, "serve by grpc-go alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	var err error
	if *bare {
		err = grpcserver.Run(ctx, []string{"connect"}, os.Stdin, os.Stdout, os.Stderr)
	} else {
		err = run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context) error {
	codec := internal.NewCodec(false)
	req := &conformancev1.ServerCompatRequest{}
	if err := codec.NewDecoder(os.Stdin).DecodeNext(req); err != nil {
		return err
	}
	if req.UseTls || req.Protocol != conformancev1.Protocol_PROTOCOL_GRPC {
		return errors.New("only gRPC without TLS is served")
	}
	d := serving.NewDeployment("Conformance", nil, serving.WithMaxOngoingRequests(100))
	conformancev1.RegisterConformanceServiceServer(d, grpcserver.NewConformanceServiceServer())
	s, err := serving.New(serving.Config{
		HTTPAddr: "127.0.0.1:0",
		GRPC:     serving.GRPCConfig{Addr: "127.0.0.1:0", MaxMessageBytes: int(req.MessageReceiveLimit)},
	}, []*serving.App{serving.NewApp("conformance", d)}, serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	addr := s.GRPCAddr().(*net.TCPAddr)
	resp := &conformancev1.ServerCompatResponse{Host: addr.IP.String(), Port: uint32(addr.Port)}
	err = codec.NewEncoder(os.Stdout).Encode(resp)
	if err == nil {
		<-ctx.Done()
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return errors.Join(err, s.Shutdown(end))
}
