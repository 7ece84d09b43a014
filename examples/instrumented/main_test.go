package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "instrumented", main) }

// start starts the service with the console plugin, on free ports.
func start(t *testing.T, args []string, environ ...string) *hellotest.Service {
	t.Helper()
	return servicetest.Start(t, "instrumented", args, append(environ, "SERVE_GRPC_PORT=0")...)
}

// startBoth starts two services, of which the first calls the other's gRPC port.
func startBoth(t *testing.T, environ ...string) (shop, words *hellotest.Service) {
	t.Helper()
	words = start(t, nil, environ...)
	port := words.Await(words.Log, ` grpc=(\S+)`, 1)
	return start(t, []string{"--words", port[0]}, environ...), words
}

// get asks for a word as part of the caller's trace.
func get(t *testing.T, url, word, traceparent string) (status int, body string) {
	t.Helper()
	return servicetest.Do(t, url+"/translate/"+word, "", "Traceparent", traceparent)
}

// chain follows the spans that the services have printed from the caller on, and
// gives their names and kinds. There must be one after the other, and no other.
func chain(t *testing.T, texts ...string) []string {
	t.Helper()
	below := map[string][]servicetest.Span{}
	list := servicetest.Spans(t, strings.Join(texts, ""))
	for _, s := range list {
		if s.Context.TraceID != "0x"+servicetest.TraceID {
			t.Errorf("span %q is of trace %s", s.Name, s.Context.TraceID)
		}
		below[s.ParentID] = append(below[s.ParentID], s)
	}
	var names []string
	for next := below["0x"+servicetest.CallerID]; len(next) == 1; next = below[next[0].Context.SpanID] {
		names = append(names, next[0].Name+" "+strings.TrimPrefix(next[0].Kind, "SpanKind."))
	}
	if len(names) != len(list) {
		t.Errorf("%d of %d spans are on the chain from the caller: %q", len(names), len(list), below)
	}
	return names
}

// One request through two services is one chain, in which spans of the libraries and of
// the runtime alternate. A request that is not sampled has no span in either service. This
// holds for every format of context.
func TestOneChain(t *testing.T) {
	for _, formats := range []string{"OTEL_PROPAGATORS=tracecontext,baggage", "OTEL_PROPAGATORS=tracecontext,baggage,b3"} {
		t.Run(formats, func(t *testing.T) {
			shop, words := startBoth(t, formats)
			for _, traceparent := range []string{servicetest.Unsampled, servicetest.Sampled} {
				if status, body := get(t, shop.URL, "cat", traceparent); status != http.StatusOK || body != "Katze\n" {
					t.Errorf("status %d, body %q", status, body)
				}
			}
			shop.Stop() // all spans are delivered
			words.Stop()
			want := []string{
				"proxy_http_request Shop GET /translate/{word} SERVER",
				"route_to_replica Shop __call__ SERVER",
				"replica_handle_request Shop __call__ SERVER",
				"GET /translate/{word} SERVER",
				"translate.v1.TranslatorService/Translate CLIENT",
				"proxy_grpc_request Translator /translate.v1.TranslatorService/Translate SERVER",
				"route_to_replica Translator Translate SERVER",
				"replica_handle_request Translator Translate SERVER",
				"translate.v1.TranslatorService/Translate SERVER",
				"look_up INTERNAL",
			}
			if diff := cmp.Diff(want, chain(t, shop.Stdout.String(), words.Stdout.String())); diff != "" {
				t.Errorf("the chain (-want +got):\n%s", diff)
			}
		})
	}
}

// A word that is not known is the client's mistake, on both ways.
func TestNotFound(t *testing.T) {
	shop, _ := startBoth(t)
	if status, body := get(t, shop.URL, "unicorn", servicetest.Sampled); status != http.StatusNotFound || body != "the word is not known\n" {
		t.Errorf("status %d, body %q", status, body)
	}
}

func TestWrongArguments(t *testing.T) {
	servicetest.WrongArguments(t, "instrumented", "address of the gRPC port to call",
		servicetest.Argument{Args: []string{"--words", "\x7f"}, Code: 1, Want: `instrumented: words at "\x7f": `})
}
