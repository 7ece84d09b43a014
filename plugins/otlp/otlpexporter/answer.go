package otlpexporter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The answers of a back end over HTTP are defined at
// https://opentelemetry.io/docs/specs/otlp/#otlphttp-response

// maxAnswer bounds the bytes that are read of an answer. The connection of a longer
// answer is closed.
const maxAnswer = 64 << 10

// Media types of answers.
const (
	kindProto = "application/x-protobuf"
	kindJSON  = "application/json"
	kindHTML  = "text/html"
	kindGRPC  = "application/grpc"
)

// reply is an answer with its body.
type reply struct {
	*http.Response
	kind string
	body []byte
	torn error // why body is incomplete; nil if it is complete
}

var errLong = fmt.Errorf("it is longer than %d bytes", maxAnswer)

// readAnswer reads a body up to maxAnswer.
func readAnswer(from io.Reader) (body []byte, torn error) {
	body, torn = io.ReadAll(io.LimitReader(from, maxAnswer+1))
	if len(body) > maxAnswer {
		return body[:maxAnswer], errLong
	}
	return body, torn
}

// read converts a response into the exporter's result. bytes is the size of the
// request. It reads and closes the body, and replaces it by the part that was read.
func (t *transport) read(resp *http.Response, bytes int64) error {
	r := reply{Response: resp}
	if resp.StatusCode != http.StatusSwitchingProtocols { // its body is the connection, which ignores deadlines
		r.body, r.torn = readAnswer(resp.Body)
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(strings.NewReader(string(r.body)))
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	r.kind = kind
	server := shownURL(resp.Request.URL)
	switch {
	case strings.HasPrefix(kind, kindGRPC):
		return refuse(codes.FailedPrecondition, "%s speaks gRPC, not OTLP/HTTP (it answered %s as %s): set %s=grpc, or use the receiver's port for HTTP, usually 4318",
			server, plain(resp.Status), plain(kind), EnvProtocol)
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		return t.success(r, server)
	}
	message, after := t.words(r)
	text := fmt.Sprintf("%s answered %s", server, plain(resp.Status))
	if message != "" {
		text += ": " + strconv.Quote(message)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if d, ok := pluginsdk.ReadRetryAfter(resp.Header); ok {
			after = d
		}
		return pluginsdk.RetryAfter(errors.New(text), after)
	}
	code, remedy := t.remedy(r, bytes)
	if remedy != "" {
		text += "; " + remedy
	}
	return refuse(code, "%s", text)
}

// refuse returns a final error. The code is for the host's delivery accounting.
func refuse(code codes.Code, format string, args ...any) error {
	return pluginsdk.Permanent(&coded{status.Newf(code, format, args...)})
}

// coded is a gRPC status with a text that omits the code, because the host adds the
// code.
type coded struct{ status *status.Status }

func (e *coded) Error() string { return e.status.Message() }

// GRPCStatus implements the interface through which pluginsdk reads the code and the
// details.
func (e *coded) GRPCStatus() *status.Status { return e.status }

// success returns the result of a successful answer, which may be partial. An answer
// that is not OTLP still means delivered, because of its status.
func (t *transport) success(r reply, server string) error {
	if r.kind == kindHTML && strings.HasPrefix(strings.TrimSpace(string(r.body)), "<") {
		// A server that answers a POST of spans with a web page has not accepted them.
		return refuse(codes.FailedPrecondition, "%s answered %s with a web page%s, so it is not a receiver of OTLP: %s",
			server, plain(r.Status), titleOf(r.body), t.checkPath())
	}
	answer, err := r.response()
	if err != nil {
		t.warnNotOTLP(r, server, err)
		return nil
	}
	return t.partial(answer.GetPartialSuccess())
}

// response decodes the body of a successful answer. An empty body of any type is valid.
func (r reply) response() (*coltracepb.ExportTraceServiceResponse, error) {
	answer := &coltracepb.ExportTraceServiceResponse{}
	switch {
	case r.torn != nil:
		return nil, r.torn
	case len(r.body) == 0:
		return answer, nil
	case r.kind == kindJSON:
		return answer, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(r.body, answer)
	case r.kind == kindProto, r.kind == "", r.kind == "application/octet-stream":
		return answer, proto.Unmarshal(r.body, answer)
	}
	return nil, fmt.Errorf("its type is %q", r.kind)
}

// warnNotOTLP logs a warning, once, about a successful answer that is not OTLP.
func (t *transport) warnNotOTLP(r reply, server string, why error) {
	if t.log == nil {
		return
	}
	t.warned.Do(func() {
		const most = 60 // bytes of the body
		t.log.Warn("the back end's answer is not OTLP: batches count as delivered, and rejected spans in the answer are not counted; check that the endpoint is a receiver of OTLP",
			"endpoint", server, "status", plain(r.Status), "error", plain(why.Error()), "body", plain(t.secrets.redact(string(r.body[:min(most, len(r.body))]))))
	})
}

// partial returns the result for a partial success. A message without rejected spans is
// a warning.
func (c *settings) partial(of *coltracepb.ExportTracePartialSuccess) error {
	rejected, message := of.GetRejectedSpans(), of.GetErrorMessage()
	if rejected <= 0 && message == "" {
		return nil
	}
	reason := plain(c.secrets.redact(message))
	if reason == "" {
		reason = "the back end gave no reason"
	}
	const beyondAnyBatch = 1 << 30
	return pluginsdk.Partial(int(min(max(0, rejected), beyondAnyBatch)), reason)
}

// words returns the message of a refusal, and the retry delay in its details, if there
// is one.
func (t *transport) words(r reply) (message string, after time.Duration) {
	message = string(r.body)
	switch r.kind {
	case kindProto:
		var st statuspb.Status
		if err := proto.Unmarshal(r.body, &st); err != nil {
			return "", 0
		}
		message, after = st.GetMessage(), retryDelay(&st)
	case kindJSON:
		var st struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(r.body, &st) == nil && st.Message != "" {
			message = st.Message
		}
	case kindHTML:
		message = "a web page" + titleOf(r.body)
	}
	return plain(t.secrets.redact(message)), after
}

// retryDelay returns the delay in RetryInfo, or 0.
func retryDelay(st *statuspb.Status) time.Duration {
	for _, detail := range st.GetDetails() {
		info := &errdetails.RetryInfo{}
		if detail.UnmarshalTo(info) == nil {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}

// titleOf returns the title of a web page, in words that follow "a web page".
func titleOf(page []byte) string {
	lower := strings.ToLower(string(page))
	if len(lower) != len(page) { // some letters have a longer lower case
		lower = string(page)
	}
	start := strings.Index(lower, "<title>")
	if start < 0 {
		return ""
	}
	title, _, _ := strings.Cut(string(page[start+len("<title>"):]), "<")
	if title = plain(title); title == "" {
		return ""
	}
	return " called " + strconv.Quote(title)
}

// remedy returns the advice for a final status, and the code under which the host
// counts it.
func (t *transport) remedy(r reply, bytes int64) (codes.Code, string) {
	switch r.StatusCode {
	case http.StatusBadRequest:
		if body := strings.ToLower(string(r.body)); strings.Contains(body, "http request to an https server") ||
			strings.Contains(body, "plain http request was sent to https port") {
			return codes.FailedPrecondition, t.wantsTLS()
		}
		return codes.InvalidArgument, ""
	case http.StatusUnauthorized:
		return codes.Unauthenticated, t.credentials()
	case http.StatusForbidden:
		return codes.PermissionDenied, t.credentials()
	case http.StatusProxyAuthRequired:
		return codes.Unauthenticated, "the proxy wants credentials: put them into the proxy's variable, as http://USER:PASSWORD@PROXY:PORT"
	case http.StatusNotFound:
		return codes.NotFound, t.checkPath()
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return codes.Unimplemented, t.checkPath()
	case http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted, fmt.Sprintf("the batch has %d bytes before compression: raise the receiver's limit, or lower SERVE_TRACING_BATCH_BYTES",
			bytes)
	case http.StatusUnsupportedMediaType:
		if t.gzip {
			return codes.InvalidArgument, fmt.Sprintf("if it takes no gzip, set %s=none", EnvCompression)
		}
		return codes.InvalidArgument, t.checkPath()
	}
	switch {
	case r.StatusCode >= 500:
		return codes.Internal, ""
	case r.StatusCode >= 300 && r.StatusCode <= 399:
		return codes.FailedPrecondition, t.redirected(r)
	}
	return codes.InvalidArgument, ""
}

// setting returns the name of the setting with the endpoint.
func (c *settings) setting() string {
	if from := c.endpoint.from; strings.HasPrefix(from, "OTEL_") || from == documentEndpoint {
		return from
	}
	return EnvEndpoint
}

func (c *settings) checkPath() string {
	if hint := c.endpoint.pathHint(); hint != "" {
		return hint
	}
	return "check host, port and path in " + c.setting()
}

func (c *settings) wantsTLS() string {
	return fmt.Sprintf("it wants TLS: write https:// in %s", c.setting())
}

// credentials returns the advice about headers. It names the sent headers and never
// shows their values.
func (c *settings) credentials() string {
	if len(c.headers) == 0 {
		return fmt.Sprintf("no credentials were sent: set them as headers in %s, such as authorization=Bearer%%20TOKEN", EnvHeaders)
	}
	return fmt.Sprintf("check the headers in %s (sent: %s)", c.headersFrom, strings.Join(slices.Sorted(maps.Keys(c.headers)), ", "))
}

func (t *transport) redirected(r reply) string {
	to, err := r.Location()
	if err != nil {
		return "it redirects to nowhere: " + t.checkPath()
	}
	return fmt.Sprintf("it redirects to %s, where spans and headers are not sent: if that is right, set it in %s", shownURL(to), t.setting())
}
