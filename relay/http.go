package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// tracesPath is the path of OTLP/HTTP for traces.
const tracesPath = "/v1/traces"

// The media types of OTLP/HTTP.
const (
	typeProto = "application/x-protobuf"
	typeJSON  = "application/json"
)

// writeTimeout bounds the time to write an answer.
const writeTimeout = 10 * time.Second

// connKey is the key of the *conn in the context of an HTTP request.
type connKey struct{}

// httpService implements OTLP/HTTP and health checks.
type httpService struct{ *service }

// front returns a listener with an HTTP server. secure may be nil.
func (s httpService) front(l net.Listener, secure *tls.Config) front {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+tracesPath, s.serveTraces)
	mux.HandleFunc(tracesPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want POST", http.StatusMethodNotAllowed)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeAnswer(w, mediaType(r), nil, status.Errorf(codes.Unimplemented, "%.100s: this relay takes traces only, at %s", r.URL.Path, tracesPath))
	})
	server := &http.Server{
		Handler:        mux,
		TLSConfig:      secure,
		ReadTimeout:    s.cfg.ReadTimeout,
		IdleTimeout:    s.cfg.IdleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: s.cfg.MaxStreams},
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if encrypted, ok := c.(*tls.Conn); ok {
				c = encrypted.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	serve := server.Serve
	if secure != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	return front{
		protocol: "http", secure: secure != nil, listener: l, serve: serve,
		drain: func() { _ = server.Shutdown(context.Background()) }, // cut ends the wait
		cut:   func() { _ = server.Close() },                        // an error of the listener has no effect here
	}
}

// serveReady answers a readiness check.
func (s httpService) serveReady(w http.ResponseWriter, _ *http.Request) {
	if s.stopping.Load() {
		http.Error(w, "the relay stops", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // the sender notices a failed write
}

// serveTraces answers a request of OTLP/HTTP.
func (s httpService) serveTraces(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*conn) //nolint:forcetypeassert // ConnContext has set it
	arrival := c.begin()
	defer c.ended()
	defer arrival.done()
	kind := mediaType(r)
	err := s.authorize(c, r.Header.Get("Authorization"))
	var response *coltracepb.ExportTraceServiceResponse
	if err == nil {
		response, err = s.exportHTTP(w, r, kind, arrival)
	}
	s.counts.addRequest(c, status.Code(err))
	if err == nil {
		c.addLost(r.Header.Get(HeaderLost))
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only for a connection without deadlines, which cannot happen
	writeAnswer(w, kind, response, err)
}

// exportHTTP reads a request with the media type kind, and exports it. Its error is a gRPC
// status or a statusError.
func (s httpService) exportHTTP(w http.ResponseWriter, r *http.Request, kind string, arrival *arrival) (*coltracepb.ExportTraceServiceResponse, error) {
	if kind != typeProto && kind != typeJSON && kind != typeCompact {
		return nil, statusError{http.StatusUnsupportedMediaType,
			status.Newf(codes.InvalidArgument, "Content-Type %.100q: want %s or %s", r.Header.Get("Content-Type"), typeProto, typeJSON)}
	}
	body, release, err := s.decode(w, r, kind)
	arrival.done()
	if err != nil {
		return nil, err
	}
	defer release()
	// The read deadline is removed, because it would end the wait for the delivery. It stays
	// after an error above, because the server then still reads the rest of the body.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // fails only for a connection without deadlines, which cannot happen
	return s.export(r.Context(), arrival.conn, body, asked{r.Header.Get(HeaderWait), r.Header.Get(headerBatchID)})
}

// decode returns the OTLP request in the body of r, which has the media type kind, and a
// function that releases the request. The error is a gRPC status or a statusError.
func (s httpService) decode(w http.ResponseWriter, r *http.Request, kind string) (request []byte, release func(), err error) {
	release = func() {}
	request, err = s.readBody(w, r)
	switch {
	case err != nil:
	case kind == typeCompact:
		request, release, err = s.decoder.expand(r.Context(), request)
	case kind == typeJSON:
		request, err = s.decoder.fromJSON(r.Context(), request)
	}
	return request, release, err
}

// readBody returns the decompressed body of a request.
func (s httpService) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, int64(s.cfg.MaxRequestBytes)))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, tooLarge(s.cfg.MaxRequestBytes)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, statusError{http.StatusRequestTimeout, status.New(codes.DeadlineExceeded, late(s.cfg.ReadTimeout))}
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the request: %v", err)
	}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return body.Bytes(), nil
	case "gzip", "zstd":
		data, err := s.decoder.decompress(r.Context(), encoding, &body)
		if err != nil {
			return nil, err
		}
		if len(data) > s.cfg.MaxRequestBytes {
			return nil, tooLarge(s.cfg.MaxRequestBytes)
		}
		return data, nil
	default:
		return nil, statusError{http.StatusUnsupportedMediaType,
			status.Newf(codes.InvalidArgument, "Content-Encoding %.100q: want gzip, zstd or none", encoding)}
	}
}

// tooLarge returns the error for a request above the limit, in bytes.
func tooLarge(limit int) error {
	return statusError{http.StatusRequestEntityTooLarge,
		status.Newf(codes.ResourceExhausted, "the request is larger than %d bytes (%s)", limit, EnvMaxRequestBytes)}
}

// late returns the error message for a request that did not arrive within limit.
func late(limit time.Duration) string {
	return fmt.Sprintf("the request did not arrive within %v (%s)", limit, EnvReadTimeout)
}

// statusError is an error with a gRPC status and an HTTP status. It is used if httpStatus would
// return another HTTP status.
type statusError struct {
	http int
	*status.Status
}

func (e statusError) Error() string { return e.Err().Error() }

// GRPCStatus returns the status for status.Convert.
func (e statusError) GRPCStatus() *status.Status { return e.Status }

// mediaType returns the media type of a request's body, without parameters.
func mediaType(r *http.Request) string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // empty if it is malformed
	return kind
}

// writeAnswer writes a response, or the status of err, in the media type of the request.
func writeAnswer(w http.ResponseWriter, kind string, response *coltracepb.ExportTraceServiceResponse, err error) {
	var message proto.Message = response
	header, code := w.Header(), http.StatusOK
	if err != nil {
		st := status.Convert(err)
		message = st.Proto()
		var delay time.Duration
		code, delay = httpStatus(st)
		if own, ok := errors.AsType[statusError](err); ok {
			code = own.http
		}
		if delay > 0 {
			header.Set("Retry-After", strconv.Itoa(int(math.Ceil(delay.Seconds()))))
		}
		switch code {
		case http.StatusUnauthorized:
			header.Set("WWW-Authenticate", "Bearer")
		case http.StatusUnsupportedMediaType:
			header.Set("Accept", typeProto+", "+typeJSON)
			header.Set("Accept-Encoding", "gzip, zstd")
		}
	}
	var body []byte
	switch kind {
	case typeProto:
		body, err = proto.Marshal(message)
	case typeJSON, typeCompact:
		kind = typeJSON
		body, err = protojson.Marshal(message)
	default:
		kind = "text/plain; charset=utf-8"
		body = []byte(status.Convert(err).Message() + "\n")
		err = nil
	}
	if err != nil { // cannot happen: the texts are valid UTF-8
		code, body = http.StatusInternalServerError, nil
	}
	header.Set("Content-Type", kind)
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the sender notices a failed write
}

// httpStatus returns the HTTP status for a gRPC status, and the value of Retry-After, as
// OTLP defines them: https://opentelemetry.io/docs/specs/otlp/#failures-1
func httpStatus(st *status.Status) (code int, retryAfter time.Duration) {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			retryAfter = info.GetRetryDelay().AsDuration()
		}
	}
	switch st.Code() {
	case codes.ResourceExhausted:
		if retryAfter > 0 {
			return http.StatusTooManyRequests, retryAfter
		}
		return http.StatusRequestEntityTooLarge, 0
	case codes.Unavailable, codes.Canceled:
		return http.StatusServiceUnavailable, retryDelay
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout, 0
	case codes.Unauthenticated:
		return http.StatusUnauthorized, 0
	case codes.Unimplemented:
		return http.StatusNotFound, 0
	}
	return http.StatusBadRequest, 0
}
