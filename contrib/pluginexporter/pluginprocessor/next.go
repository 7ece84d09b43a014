package pluginprocessor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxMessageBytes bounds a batch from the host, in bytes.
const maxMessageBytes = 64 << 20

// socket is a Unix socket at which the rest of the Collector's pipeline takes batches by OTLP.
type socket struct {
	path   string
	server *grpc.Server
	ended  chan struct{} // closed when the server has ended
}

// listen opens a socket whose batches go to next. The socket is in a new folder that only
// this user can open.
func listen(next consumer.Traces, log *zap.Logger) (*socket, error) {
	folder, err := os.MkdirTemp("", "servetrace-")
	if err != nil {
		return nil, err
	}
	s := &socket{
		path:   filepath.Join(folder, "next.sock"),
		server: grpc.NewServer(grpc.MaxRecvMsgSize(maxMessageBytes)),
		ended:  make(chan struct{}),
	}
	l, err := net.Listen("unix", s.path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(folder))
	}
	ptraceotlp.RegisterGRPCServer(s.server, &receiver{next: next})
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(l); err != nil {
			log.Error("the socket behind the plugins has failed", zap.Error(err))
		}
	}()
	return s, nil
}

// close waits for the calls in progress, and removes the socket with its folder.
func (s *socket) close() error {
	s.server.GracefulStop()
	<-s.ended
	return os.RemoveAll(filepath.Dir(s.path))
}

// receiver is the OTLP service behind the socket.
type receiver struct {
	ptraceotlp.UnimplementedGRPCServer
	next consumer.Traces
}

// Export passes a batch to the next consumer. After a permanent error of the consumer, the
// host must not send the batch again, so the status is INVALID_ARGUMENT.
func (r *receiver) Export(ctx context.Context, request ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	err := r.next.ConsumeTraces(ctx, request.Traces())
	if err == nil {
		return ptraceotlp.NewExportResponse(), nil
	}
	code := codes.Unavailable
	if consumererror.IsPermanent(err) {
		code = codes.InvalidArgument
	}
	return ptraceotlp.NewExportResponse(), status.Error(code, err.Error())
}
