package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/examples/grpc/translatev1"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/peers/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the end of a server.
const patience = time.Minute

// translator knows one word.
type translator struct {
	translatev1.UnimplementedTranslatorServiceServer

	to string
}

func (s translator) Translate(_ context.Context, in *translatev1.TranslateRequest) (*translatev1.TranslateResponse, error) {
	switch in.GetWord() {
	case "cat":
		return &translatev1.TranslateResponse{Translation: s.to}, nil
	case "":
		return nil, errors.New("no word")
	}
	return nil, status.Error(codes.NotFound, "not known")
}

func (s translator) ListWords(_ *translatev1.ListWordsRequest, stream grpc.ServerStreamingServer[translatev1.ListWordsResponse]) error {
	for range 2 {
		if err := stream.Send(&translatev1.ListWordsResponse{Word: "cat", Translation: s.to}); err != nil {
			return err
		}
	}
	return nil
}

func (translator) CountWords(stream grpc.ClientStreamingServer[translatev1.CountWordsRequest, translatev1.CountWordsResponse]) error {
	for n := int32(0); ; n++ {
		switch _, err := stream.Recv(); {
		case errors.Is(err, io.EOF):
			return stream.SendAndClose(&translatev1.CountWordsResponse{Words: n})
		case err != nil:
			return err
		}
	}
}

func (s translator) Converse(stream grpc.BidiStreamingServer[translatev1.ConverseRequest, translatev1.ConverseResponse]) error {
	for {
		switch _, err := stream.Recv(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := stream.Send(&translatev1.ConverseResponse{Translation: s.to}); err != nil {
			return err
		}
	}
}

// start serves an app of each name, and gives the address.
func start(t *testing.T, names ...string) string {
	t.Helper()
	var apps []*serving.App
	for _, name := range names {
		d := serving.NewDeployment("Translator", nil)
		translatev1.RegisterTranslatorServiceServer(d, translator{to: "Katze of " + name})
		apps = append(apps, serving.NewApp(name, d))
	}
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0", GRPC: serving.GRPCConfig{Addr: "127.0.0.1:0"}}, apps,
		serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s.GRPCAddr().String()
}

// TestGRPCurl tries what an operator does, with nothing but the address.
func TestGRPCurl(t *testing.T) {
	const service = "translate.v1.TranslatorService/"
	single, several := start(t, "a"), start(t, "a", "b")
	for _, test := range []struct {
		name  string
		args  []string
		input string
		want  []string // of what it prints, in order
		code  int
	}{
		{"services", []string{single, "list"}, "", []string{
			"grpc.health.v1.Health\n", "grpc.reflection.v1.ServerReflection\n", "grpc.reflection.v1alpha.ServerReflection\n",
			"ray.serve.RayServeAPIService\n", "translate.v1.TranslatorService\n",
		}, 0},
		{"a message", []string{single, "describe", "translate.v1.TranslateRequest"}, "", []string{"string word = 1;"}, 0},
		{"unary", []string{"-v", "-d", `{"word": "cat"}`, "-H", "request_id: mine", single, service + "Translate"}, "", []string{
			`"translation": "Katze of a"`, "Response trailers received:", "request_id: mine",
		}, 0},
		{"server stream", []string{single, service + "ListWords"}, "", []string{"Katze", "Katze"}, 0},
		{"client stream", []string{"-d", "@", single, service + "CountWords"}, `{"word":"a"} {"word":"b"} {"word":"c"}`, []string{`"words": 3`}, 0},
		{"bidirectional", []string{"-d", "@", single, service + "Converse"}, `{"word":"a"} {"word":"b"}`, []string{"Katze", "Katze"}, 0},
		{"a code", []string{"-d", `{"word": "dog"}`, single, service + "Translate"}, "", []string{"Code: NotFound", "Message: not known"}, 64 + int(codes.NotFound)},
		{"an error", []string{single, service + "Translate"}, "", []string{"Code: Internal", "Message: no word"}, 64 + int(codes.Internal)},
		{"Ray's health", []string{single, "ray.serve.RayServeAPIService/Healthz"}, "", []string{`"message": "success"`}, 0},
		{"Ray's list", []string{"-H", "application: a", several, "ray.serve.RayServeAPIService/ListApplications"}, "", []string{`"a"`, `"b"`}, 0},
		{"health", []string{single, "grpc.health.v1.Health/Check"}, "", []string{`"status": "SERVING"`}, 0},
		{"one of several", []string{"-H", "application: b", "-d", `{"word": "cat"}`, several, service + "Translate"}, "", []string{"Katze of b"}, 0},
		{"none of several", []string{several, "list"}, "", []string{"Application metadata not set."}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, code := peer.GRPCurl(t, test.input, test.args...)
			rest := stdout + stderr
			for _, text := range test.want {
				_, after, found := strings.Cut(rest, text)
				if !found {
					t.Errorf("%q is not where it should be in:\n%s%s", text, stdout, stderr)
					break
				}
				rest = after
			}
			if code != test.code {
				t.Errorf("exit code %d, want %d:\n%s", code, test.code, stderr)
			}
		})
	}
}
