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

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
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
}

// read turns an answer into that for the host. A body that breaks off changes
// nothing: the status has been said.
func (t *transport) read(c *call, resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	var body []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection, and ends by no deadline
		body, _ = io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	r := reply{resp, kind, body}
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
	code, remedy := t.remedy(c, r)
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

// taken reads an answer of success, which may be a partial one.
func (t *transport) taken(r reply, who string) error {
	switch {
	case r.kind == kindHTML && strings.HasPrefix(strings.TrimSpace(string(r.body)), "<"):
		// Whoever shows a web page to a POST of spans has not taken them.
		return refuse(codes.FailedPrecondition, "%s answered %s with a web page%s, so it is no receiver of OTLP: %s",
			who, plain(r.Status), titleOf(r.body), t.checkPath())
	case r.kind == kindJSON:
		return t.partial(partialOfJSON(r.body))
	case r.kind != kindProto && r.kind != "" && r.kind != "application/octet-stream":
		return nil
	}
	return t.partial(partialOf(r.body))
}

// partialOf reads an ExportTraceServiceResponse, by hand, because its package
// brings an HTTP gateway along. What can not be read is left out: the batch was
// taken, whatever was said besides.
func partialOf(answer []byte) (rejected int64, message string) {
	const fieldPartialSuccess, fieldRejectedSpans, fieldErrorMessage = 1, 1, 2
	each(answer, func(number protowire.Number, kind protowire.Type, value []byte) {
		if number != fieldPartialSuccess || kind != protowire.BytesType {
			return
		}
		inner, _ := protowire.ConsumeBytes(value)
		each(inner, func(number protowire.Number, kind protowire.Type, value []byte) {
			switch {
			case number == fieldRejectedSpans && kind == protowire.VarintType:
				n, _ := protowire.ConsumeVarint(value)
				rejected = int64(n)
			case number == fieldErrorMessage && kind == protowire.BytesType:
				text, _ := protowire.ConsumeString(value)
				message = text
			}
		})
	})
	return rejected, message
}

// each goes through the fields of a message, up to one that can not be read.
func each(message []byte, field func(number protowire.Number, kind protowire.Type, value []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return
		}
		field(number, kind, message[n:n+size])
		message = message[n+size:]
	}
}

// partial is the answer where the back end took all but some spans. None, with a
// message, is a warning.
func (c *settings) partial(rejected int64, message string) error {
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

// partialOfJSON reads what is meant for clients that sent JSON. Numbers of 64
// bits are texts there.
func partialOfJSON(body []byte) (rejected int64, message string) {
	var answer struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"`
			ErrorMessage  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return 0, ""
	}
	number := strings.Trim(string(answer.PartialSuccess.RejectedSpans), `"`)
	rejected, _ = strconv.ParseInt(number, 10, 64)
	return rejected, answer.PartialSuccess.ErrorMessage
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
func (t *transport) remedy(c *call, r reply) (codes.Code, string) {
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
			c.bytes)
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
