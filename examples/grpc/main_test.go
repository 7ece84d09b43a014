package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/examples/grpc/translatev1"
	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "grpc", main) }

// start starts the service with the console plugin, and gives a client of it.
func start(t *testing.T) (*hellotest.Service, translatev1.TranslatorServiceClient) {
	t.Helper()
	s := servicetest.Start(t, "grpc", []string{"--grpc", "127.0.0.1:0"})
	addr := s.Await(s.Log, `\bgrpc=(\S+)`, 1)[0]
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, translatev1.NewTranslatorServiceClient(conn)
}

// traced returns the context of a call in a trace whose id has one digit only.
func traced(t *testing.T, digit string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hellotest.Patience)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+strings.Repeat(digit, 32)+"-"+servicetest.CallerID+"-01", "request_id", "call-"+digit)
}

// family are the spans of a call, with the status and code of the proxy's.
func family(method, outcome string, lookUps int) []string {
	full := "/translate.v1.TranslatorService/" + method
	spans := []string{
		"proxy_grpc_request Translator " + full + " " + outcome + " < the client",
		"route_to_replica Translator " + method + " < proxy_grpc_request",
		"replica_handle_request Translator " + method + " < route_to_replica",
	}
	for range lookUps {
		spans = append(spans, "look up < replica_handle_request")
	}
	slices.Sort(spans)
	return spans
}

// A call of each kind, and two that fail, are a trace each.
func TestOneTraceOfEachCall(t *testing.T) {
	s, client := start(t)
	out, err := client.Translate(traced(t, "1"), &translatev1.TranslateRequest{Word: "cat"})
	if err != nil || out.GetTranslation() != "Katze" {
		t.Errorf("Translate: %v, %v", out, err)
	}
	checkText(t, "ListWords", "cat dog house trace", func() (string, error) {
		stream, err := client.ListWords(traced(t, "2"), &translatev1.ListWordsRequest{})
		if err != nil {
			return "", err
		}
		return gather(stream, (*translatev1.ListWordsResponse).GetWord)
	})
	checkText(t, "CountWords", "words:3 known:2", func() (string, error) {
		stream, err := client.CountWords(traced(t, "3"))
		if err != nil {
			return "", err
		}
		for _, word := range []string{"cat", "elephant", "dog"} {
			if err := stream.Send(&translatev1.CountWordsRequest{Word: word}); err != nil {
				return "", err
			}
		}
		out, err := stream.CloseAndRecv()
		return strings.Join(strings.Fields(out.String()), " "), err
	})
	checkText(t, "Converse", "Hund  Spur", func() (string, error) {
		stream, err := client.Converse(traced(t, "4"))
		if err != nil {
			return "", err
		}
		var heard []string
		for _, word := range []string{"dog", "elephant", "trace"} {
			if err := stream.Send(&translatev1.ConverseRequest{Word: word}); err != nil {
				return "", err
			}
			out, err := stream.Recv() // each is answered as it comes
			if err != nil {
				return "", err
			}
			heard = append(heard, out.GetTranslation())
		}
		return strings.Join(heard, " "), stream.CloseSend()
	})
	_, err = client.Translate(traced(t, "5"), &translatev1.TranslateRequest{Word: "elephant"})
	if want := `rpc error: code = NotFound desc = the word "elephant" is not known`; err == nil || err.Error() != want {
		t.Errorf("an unknown word: %v, want %s", err, want)
	}
	_, err = client.Translate(traced(t, "6"), &translatev1.TranslateRequest{})
	if want := "rpc error: code = Internal desc = there is no word to translate"; err == nil || err.Error() != want {
		t.Errorf("no word: %v, want %s", err, want)
	}
	s.Stop() // all spans are delivered
	want := map[string][]string{
		"1": family("Translate", "OK OK", 1), "2": family("ListWords", "OK OK", 0),
		"3": family("CountWords", "OK OK", 3), "4": family("Converse", "OK OK", 3),
		"5": family("Translate", "OK NOT_FOUND", 1), "6": family("Translate", "ERROR INTERNAL", 0),
	}
	if diff := cmp.Diff(want, traces(t, s.Stdout.String())); diff != "" {
		t.Errorf("spans by trace (-want +got):\n%s", diff)
	}
}

func checkText(t *testing.T, method, want string, call func() (string, error)) {
	t.Helper()
	if got, err := call(); err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", method, got, err, want)
	}
}

// gather collects the messages of a stream.
func gather[M any](stream grpc.ServerStreamingClient[M], text func(*M) string) (string, error) {
	var all []string
	for {
		out, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(all, " "), nil
		case err != nil:
			return "", err
		}
		all = append(all, text(out))
	}
}

// traces returns the printed spans by the digit of their trace, each with the family of
// its parent.
func traces(t *testing.T, text string) map[string][]string {
	t.Helper()
	families := map[string]string{"0x" + servicetest.CallerID: "the client"}
	list := servicetest.Spans(t, text)
	for _, s := range list {
		families[s.Context.SpanID], _, _ = strings.Cut(s.Name, " ")
	}
	found := map[string][]string{}
	for _, s := range list {
		line := s.Name
		if code, ok := s.Attributes["rpc.grpc.status_code"].(string); ok {
			line += " " + s.Status.Code + " " + code
		}
		digit := s.Context.TraceID[2:3]
		found[digit] = append(found[digit], line+" < "+families[s.ParentID])
	}
	for _, lines := range found {
		slices.Sort(lines)
	}
	return found
}

func TestWrongArguments(t *testing.T) {
	servicetest.WrongArguments(t, "grpc", "address to serve gRPC on",
		servicetest.Argument{Args: []string{"--grpc", "nowhere"}, Code: 2, Want: `invalid value "nowhere" for flag -grpc: want HOST:PORT, such as 127.0.0.1:8080`})
}
