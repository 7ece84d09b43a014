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

// What a back end answers over HTTP, and what it means:
// https://opentelemetry.io/docs/specs/otlp/#otlphttp-response

// mostAnswer is how much of an answer is read, in bytes. A longer one is not read
// to its end, and costs the connection.
const mostAnswer = 64 << 10

// The kinds of answers.
const (
	kindProto = "application/x-protobuf"
	kindJSON  = "application/json"
	kindHTML  = "text/html"
	kindGRPC  = "application/grpc"
)

// reply is an answer as it was read.
type reply struct {
	*http.Response
	kind string
	body []byte
	torn error // the reason for which body is not all of it; nil if it is
}

var errLong = fmt.Errorf("it is longer than %d bytes", mostAnswer)

// readAnswer reads a body up to the bound.
func readAnswer(from io.Reader) (body []byte, torn error) {
	body, torn = io.ReadAll(io.LimitReader(from, mostAnswer+1))
	if len(body) > mostAnswer {
		return body[:mostAnswer], errLong
	}
	return body, torn
}

// read turns a response, to a request of so many bytes, into the answer to the
// host. It reads the body, closes it, and puts what it has read in its place.
func (t *transport) read(resp *http.Response, bytes int64) error {
	r := reply{Response: resp}
	if resp.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection, and ends by no deadline
		r.body, r.torn = readAnswer(resp.Body)
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(strings.NewReader(string(r.body)))
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	r.kind = kind
	who := shownURL(resp.Request.URL)
	switch {
	case strings.HasPrefix(kind, kindGRPC):
		return refuse(codes.FailedPrecondition, "%s speaks gRPC, not OTLP/HTTP (it answered %s as %s): set %s=grpc, or use the receiver's port for HTTP, usually 4318",
			who, plain(resp.Status), plain(kind), EnvProtocol)
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		return t.taken(r, who)
	}
	said, after := t.words(r)
	text := fmt.Sprintf("%s answered %s", who, plain(resp.Status))
	if said != "" {
		text += ": " + strconv.Quote(said)
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

// refuse is a final answer. The code is for the host's books.
func refuse(code codes.Code, format string, args ...any) error {
	return pluginsdk.Permanent(&coded{status.Newf(code, format, args...)})
}

// coded is a gRPC status whose text is only what it says, without the code, for
// the host shows that by itself.
type coded struct{ status *status.Status }

func (e *coded) Error() string { return e.status.Message() }

// GRPCStatus is what pluginsdk reads code and details from.
func (e *coded) GRPCStatus() *status.Status { return e.status }

// taken reads an answer of success, which may be a partial one. An answer that
// is not OTLP's still means that the batch was taken: the status says so.
func (t *transport) taken(r reply, who string) error {
	if r.kind == kindHTML && strings.HasPrefix(strings.TrimSpace(string(r.body)), "<") {
		// What shows a web page to a POST of spans has not taken them.
		return refuse(codes.FailedPrecondition, "%s answered %s with a web page%s, so it is no receiver of OTLP: %s",
			who, plain(r.Status), titleOf(r.body), t.checkPath())
	}
	answer, err := r.response()
	if err != nil {
		t.odd(r, who, err)
		return nil
	}
	return t.partial(answer.GetPartialSuccess())
}

// response decodes the body of an answer of success. An empty body is a valid
// answer, of any type.
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

// odd warns, once, of an answer of success that is not OTLP's.
func (t *transport) odd(r reply, who string, why error) {
	if t.log == nil {
		return
	}
	t.warned.Do(func() {
		const most = 60 // bytes of the body
		t.log.Warn("what the back end answered is no OTLP answer: batches count as delivered, and what it may say of rejected spans is not read; check that the endpoint is a receiver of OTLP",
			"endpoint", who, "status", plain(r.Status), "error", plain(why.Error()), "body", plain(t.secrets.hide(string(r.body[:min(most, len(r.body))]))))
	})
}

// partial is the answer to the host when the back end took all but some spans.
// A message without rejected spans is a warning.
func (c *settings) partial(of *coltracepb.ExportTracePartialSuccess) error {
	rejected, message := of.GetRejectedSpans(), of.GetErrorMessage()
	if rejected <= 0 && message == "" {
		return nil
	}
	said := plain(c.secrets.hide(message))
	if said == "" {
		said = "the back end gave no reason"
	}
	const beyondAnyBatch = 1 << 30
	return pluginsdk.Partial(int(min(max(0, rejected), beyondAnyBatch)), said)
}

// words gives what a refusal says for people, and for how long it wants to be
// left alone if that is in its details.
func (t *transport) words(r reply) (said string, after time.Duration) {
	said = string(r.body)
	switch r.kind {
	case kindProto:
		var st statuspb.Status
		if err := proto.Unmarshal(r.body, &st); err != nil {
			return "", 0
		}
		said, after = st.GetMessage(), restOf(&st)
	case kindJSON:
		var st struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(r.body, &st) == nil && st.Message != "" {
			said = st.Message
		}
	case kindHTML:
		said = "a web page" + titleOf(r.body)
	}
	return plain(t.secrets.hide(said)), after
}

// restOf finds RetryInfo.
func restOf(st *statuspb.Status) time.Duration {
	for _, detail := range st.GetDetails() {
		info := &errdetails.RetryInfo{}
		if detail.UnmarshalTo(info) == nil {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}

// titleOf is a web page's, in words that follow "a web page".
func titleOf(page []byte) string {
	lower := strings.ToLower(string(page))
	if len(lower) != len(page) { // some letters are longer in lower case
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

// remedy says what to do about a status that is final, and under which code the
// host counts it.
func (t *transport) remedy(r reply, bytes int64) (codes.Code, string) {
	switch r.StatusCode {
	case http.StatusBadRequest:
		if said := strings.ToLower(string(r.body)); strings.Contains(said, "http request to an https server") ||
			strings.Contains(said, "plain http request was sent to https port") {
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

// setting is what an operator would change to send spans elsewhere.
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

// credentials names the headers that were sent, never their values.
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
