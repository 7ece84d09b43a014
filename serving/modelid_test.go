package serving_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving"
)

// TestModelIDHeader reads the model of a request from all forms of the header,
// over a real connection, and looks for it in the spans.
func TestModelIDHeader(t *testing.T) {
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		_, err := fmt.Fprintf(w, "%q", serving.ModelID(r.Context()))
		return err
	}))
	for _, tc := range []struct{ header, want string }{
		{"", ""},
		{"serve_multiplexed_model_id: a", "a"},
		{"SERVE_MULTIPLEXED_MODEL_ID: a", "a"},
		{"Serve-Multiplexed-Model-Id: a", "a"},
		{"serve-multiplexed-model-id: a", "a"},
		{"serve_multiplexed-model_id: a", "a"},
		{"serve-multiplexed_model_id: a", "a"},
		{"serve_multiplexed_model-id: a", "a"},
		{"serve_multiplexed_model_id: a\r\nserve_multiplexed_model_id: b", "b"},
		{"serve_multiplexed_model_id:   s3://models/ä b ", "s3://models/ä b"},
		{"serve_multiplexed_model_id: \xff", "\uFFFD"},
		{"serve_multiplexed_model_id:", ""},
		{"x_serve_multiplexed_model_id: a", ""},
		{"servemultiplexedmodelid: a", ""},
	} {
		head := "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		if tc.header != "" {
			head += tc.header + "\r\n"
		}
		resp, err := http.ReadResponse(bufio.NewReader(r.dial(head+"\r\n")), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := fmt.Sprintf("%q", tc.want); err != nil || string(body) != want {
			t.Errorf("header %q gives %s, %v, want %s", tc.header, body, err, want)
		}
		for _, s := range r.spans.take(t, 3) {
			got, has := attr(s, "multiplexed_model_id")
			if proxy := strings.HasPrefix(s.Name(), "proxy_http_request"); has == proxy || !proxy && got.AsString() != tc.want {
				t.Errorf("header %q: %s has model %q, want %q", tc.header, s.Name(), got.AsString(), tc.want)
			}
		}
	}
}
