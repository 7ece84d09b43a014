package otlpexporter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
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

// OTLP defines the answers of a back end over HTTP at
// https://opentelemetry.io/docs/specs/otlp/#otlphttp-response

// maxAnswer bounds the number of bytes that are read of a back end's answer. If an answer
// is longer, its connection is closed.
const maxAnswer = 64 << 10

const (
	kindProto = "application/x-protobuf"
	kindJSON  = "application/json"
	kindHTML  = "text/html"
	kindGRPC  = "application/grpc"
)

// answers converts the answers of a back end to the errors that Export returns.
type answers struct {
	adviser
	warned sync.Once // limits warnNotOTLP to one warning
}

type reply struct {
	*http.Response
	kind string
	body []byte
	torn error // the reason for which body is incomplete; nil if it is complete
}

var errLong = fmt.Errorf("it is longer than %d bytes", maxAnswer)

// readAnswer reads at most maxAnswer bytes of an answer. torn is the reason for which
// body is incomplete.
func readAnswer(from io.Reader) (body []byte, torn error) {
	body, torn = io.ReadAll(io.LimitReader(from, maxAnswer+1))
	if len(body) > maxAnswer {
		return body[:maxAnswer], errLong
	}
	return body, torn
}

// read converts a response to the error that Export returns, or nil. It reads and closes
// the response's body, and replaces it by the part that was read. bytes is the size of
// the request before compression.
func (a *answers) read(resp *http.Response, bytes int64) error {
	r := reply{Response: resp}
	if resp.StatusCode != http.StatusSwitchingProtocols { // the body would then be the connection itself, on which a read ignores deadlines
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
		return a.success(r, server)
	}
	message, after := a.words(r)
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
	code, remedy := a.remedy(r, bytes)
	if remedy != "" {
		text += "; " + remedy
	}
	return refuse(code, "%s", text)
}

// refuse returns a final error. The host counts the rejected spans under the code.
func refuse(code codes.Code, format string, args ...any) error {
	return pluginsdk.Permanent(&coded{status.Newf(code, format, args...)})
}

// coded is an error with a gRPC status. Its text omits the code, because the host adds
// it.
type coded struct{ status *status.Status }

func (e *coded) Error() string { return e.status.Message() }

// GRPCStatus lets pluginsdk read the code and the details.
func (e *coded) GRPCStatus() *status.Status { return e.status }

// success returns nil or a partial success for an answer with a status of success.
// Because of the status, the spans count as delivered even if the answer is not OTLP. But
// a web page is an error.
func (a *answers) success(r reply, server string) error {
	if r.kind == kindHTML && strings.HasPrefix(strings.TrimSpace(string(r.body)), "<") {
		// A server that answers with a web page is no receiver of OTLP, so it has not accepted
		// the spans.
		return refuse(codes.FailedPrecondition, "%s answered %s with a web page%s, so it is not a receiver of OTLP: %s",
			server, plain(r.Status), titleOf(r.body), a.checkPath())
	}
	answer, err := r.response()
	if err != nil {
		a.warnNotOTLP(r, server, err)
		return nil
	}
	return a.partial(answer.GetPartialSuccess())
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
func (a *answers) warnNotOTLP(r reply, server string, why error) {
	if a.settings.log == nil {
		return
	}
	a.warned.Do(func() {
		const most = 60 // length in bytes to which the body is cut
		a.settings.log.Warn("the back end's answer is not OTLP: batches count as delivered, and rejected spans in the answer are not counted; check that the endpoint is a receiver of OTLP",
			"endpoint", server, "status", plain(r.Status), "error", plain(why.Error()), "body", plain(a.settings.secrets.redact(string(r.body[:min(most, len(r.body))]))))
	})
}

// partial returns the error for the partial success in an answer of OTLP. It returns nil
// if the answer rejects no spans and has no message.
func (a *answers) partial(of *coltracepb.ExportTracePartialSuccess) error {
	rejected, message := of.GetRejectedSpans(), of.GetErrorMessage()
	if rejected <= 0 && message == "" {
		return nil
	}
	reason := plain(a.settings.secrets.redact(message))
	if reason == "" {
		reason = "the back end gave no reason"
	}
	const beyondAnyBatch = 1 << 30
	return pluginsdk.Partial(int(min(max(0, rejected), beyondAnyBatch)), reason)
}

// words returns the message in the body of an answer that refuses the batch. after is the
// delay for a retry in the body, or zero.
func (a *answers) words(r reply) (message string, after time.Duration) {
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
	return plain(a.settings.secrets.redact(message)), after
}

func retryDelay(st *statuspb.Status) time.Duration {
	for _, detail := range st.GetDetails() {
		info := &errdetails.RetryInfo{}
		if detail.UnmarshalTo(info) == nil {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}

var titleTag = regexp.MustCompile(`(?i)<title>([^<]*)`)

// titleOf returns ` called "TITLE"` with the title of a web page, or "" if it has none.
// The text follows after the words "a web page".
func titleOf(page []byte) string {
	if tag := titleTag.FindSubmatch(page); tag != nil && plain(string(tag[1])) != "" {
		return " called " + strconv.Quote(plain(string(tag[1])))
	}
	return ""
}

// remedy returns the gRPC code for an HTTP status that is not retried, and advice for the
// operator. The host counts the rejected spans under the code. The advice may be empty.
func (a *answers) remedy(r reply, bytes int64) (codes.Code, string) {
	switch r.StatusCode {
	case http.StatusBadRequest:
		if body := strings.ToLower(string(r.body)); strings.Contains(body, "http request to an https server") ||
			strings.Contains(body, "plain http request was sent to https port") {
			return codes.FailedPrecondition, a.wantsTLS()
		}
		return codes.InvalidArgument, ""
	case http.StatusUnauthorized:
		return codes.Unauthenticated, a.credentials()
	case http.StatusForbidden:
		return codes.PermissionDenied, a.credentials()
	case http.StatusProxyAuthRequired:
		return codes.Unauthenticated, "the proxy wants credentials: put them into the proxy's variable, as http://USER:PASSWORD@PROXY:PORT"
	case http.StatusNotFound:
		return codes.NotFound, a.checkPath()
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return codes.Unimplemented, a.checkPath()
	case http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted, fmt.Sprintf("the batch has %d bytes before compression: raise the receiver's limit, or lower SERVE_TRACING_BATCH_BYTES",
			bytes)
	case http.StatusUnsupportedMediaType:
		if a.settings.gzip {
			return codes.InvalidArgument, fmt.Sprintf("if it takes no gzip, set %s=none", EnvCompression)
		}
		return codes.InvalidArgument, a.checkPath()
	}
	switch {
	case r.StatusCode >= 500:
		return codes.Internal, ""
	case r.StatusCode >= 300 && r.StatusCode <= 399:
		return codes.FailedPrecondition, a.redirected(r)
	}
	return codes.InvalidArgument, ""
}

func (a *answers) redirected(r reply) string {
	to, err := r.Location()
	if err != nil {
		return "it redirects to nowhere: " + a.checkPath()
	}
	return fmt.Sprintf("it redirects to %s, where spans and headers are not sent: if that is right, set it in %s", shownURL(to), a.setting())
}
