package otlpexporter

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// headerBatchID is the header with the batch's id. By this id, the servetrace relay
// recognises and refuses a batch that it has sent itself.
const headerBatchID = "servetrace-batch-id"

// reservedHeaders lists headers that only the client may set, because they describe the
// message or the connection.
var reservedHeaders = []string{
	"content-type", "content-encoding", "content-length", "transfer-encoding", "connection", "host", "te", "trailer", "upgrade",
}

// headers returns the headers of Defaults and of the operator, with names in lower case.
// The operator's headers come from a variable, or from the configuration if no variable
// is set. from names the setting that the operator would change.
func (r *reader) headers(protocol string, d Defaults) (all map[string]string, from string) {
	all = map[string]string{}
	for name, text := range d.Headers {
		if err := checkHeader(protocol, name, text); err != nil {
			r.fault("", "header %q of the plugin's own: %w", plain(name), err)
		}
		all[strings.ToLower(name)] = text
	}
	chosen := r.choose(EnvHeaders, "", value{})
	given := map[string]string{}
	if from = chosen.from; chosen.set() {
		given = r.parseHeaders(chosen)
	} else if len(r.doc.Exporter.Headers) > 0 {
		given, from = r.doc.Exporter.Headers, "exporter.headers"
	}
	for name, text := range given {
		lower := strings.ToLower(name)
		text = strings.TrimSpace(text) // a secret that was read from a file may end with a newline
		switch err := checkHeader(protocol, name, text); {
		case err != nil:
			r.fault(from, "header %q: %w", plain(name), err)
		case slices.Contains(reservedHeaders, lower) || protocol == protocolGRPC && strings.HasPrefix(lower, "grpc-"):
			r.warn(from, fmt.Sprintf("header %q is set by the client and is ignored", lower))
		default:
			all[lower] = text
		}
	}
	if from == "" {
		from = EnvHeaders
	}
	return all, from
}

// parseHeaders parses pairs of the form name=value, separated by commas, with
// percent-encoded values. Errors never show an invalid pair, because it may be a secret.
// The format is defined at
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/#specifying-headers-via-environment-variables
func (r *reader) parseHeaders(v value) map[string]string {
	all := map[string]string{}
	for i, item := range strings.Split(v.text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, text, found := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		if !found || !httpguts.ValidHeaderFieldName(name) {
			r.fault(v.from, "item %d is not name=value: want items as authorization=Bearer%%20abc, separated by commas, "+
				"with a comma within a value as %%2C (the item is not shown, because it may be a secret)", i+1)
			continue
		}
		decoded, err := url.PathUnescape(strings.TrimSpace(text))
		if err != nil {
			r.fault(v.from, "the value of %q is not percent-encoded: write %% as %%25", plain(name))
			continue
		}
		all[name] = decoded
	}
	return all
}

func checkHeader(protocol, name, text string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return errors.New("the name has characters that are not allowed in a header's name")
	}
	if protocol == protocolGRPC && strings.HasSuffix(strings.ToLower(name), "-bin") {
		return nil // any value is allowed, because gRPC sends it in base64
	}
	if !httpguts.ValidHeaderFieldValue(text) {
		return errors.New("the value has control characters, such as the end of a line")
	}
	if protocol != protocolGRPC {
		return nil
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return errors.New("the value has characters beyond ASCII, which gRPC allows only in headers that end in -bin")
		}
	}
	return nil
}
