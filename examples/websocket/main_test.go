package main

import (
	"net/http"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "websocket", main) }

// open opens a socket, as part of the caller's trace.
func open(t *testing.T, url string, subprotocols ...string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url+"/chat", &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		Subprotocols: subprotocols,
		HTTPHeader:   http.Header{"Traceparent": {servicetest.Sampled}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func say(t *testing.T, c *websocket.Conn, text, want string) {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := c.Read(t.Context()); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// spans returns the number of the spans by their name and their parent's name, and the
// close codes.
func spans(t *testing.T, text string) (parents map[string]int, codes []float64) {
	t.Helper()
	names := map[string]string{"0x" + servicetest.CallerID: "the client"}
	list := servicetest.Spans(t, text)
	for _, s := range list {
		if s.Context.TraceID != "0x"+servicetest.TraceID {
			t.Errorf("span %q is of trace %s", s.Name, s.Context.TraceID)
		}
		if code, ok := s.Attributes["http.status_code"].(float64); ok {
			codes = append(codes, code)
		}
		names[s.Context.SpanID] = s.Name
	}
	parents = map[string]int{}
	for _, s := range list {
		parents[s.Name+" < "+names[s.ParentID]]++
	}
	return parents, codes
}

// A conversation of three messages is one trace.
func TestConversation(t *testing.T) {
	s := servicetest.Start(t, "websocket", nil)
	c := open(t, s.URL, protocol)
	for range 3 {
		say(t, c, "I like the sea.", "I like the sea? Tell me more.")
	}
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Error(err)
	}
	s.Stop() // all spans are delivered
	parents, codes := spans(t, s.Stdout.String())
	want := map[string]int{
		"proxy_websocket_request Chat WS /chat < the client":                     1,
		"route_to_replica Chat __call__ < proxy_websocket_request Chat WS /chat": 1,
		"replica_handle_request Chat __call__ < route_to_replica Chat __call__":  1,
		"route_to_replica Model reply < replica_handle_request Chat __call__":    3,
		"replica_handle_request Model reply < route_to_replica Model reply":      3,
	}
	if diff := cmp.Diff(want, parents); diff != "" {
		t.Errorf("spans and their parents (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{1000}, codes); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}

// A client that speaks of something else is told so.
func TestRefusals(t *testing.T) {
	s := servicetest.Start(t, "websocket", nil)
	c := open(t, s.URL)
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("without a subprotocol: %v", err)
	}
	c = open(t, s.URL, protocol)
	_ = c.Write(t.Context(), websocket.MessageBinary, []byte{1})
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
		t.Errorf("a message that is no text: %v", err)
	}
	_, resp, err := websocket.Dial(t.Context(), s.URL+"/chat", &websocket.DialOptions{ //nolint:bodyclose // the library has
		HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}},
	})
	if err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %v", err)
	}
}

// A service that stops notifies its clients.
func TestStop(t *testing.T) {
	s := servicetest.Start(t, "websocket", nil, "SERVE_SHUTDOWN_TIMEOUT=100ms")
	c := open(t, s.URL, protocol)
	say(t, c, "Stay!", "Stay? Tell me more.")
	if err := syscall.Kill(s.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("at the end: %v", err)
	}
}
