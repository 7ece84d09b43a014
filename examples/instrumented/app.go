package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/examples/grpc/translatev1"
	"github.com/servetrace/servetrace/serving"
)

// tracer uses OpenTelemetry's global provider, which servetrace.Run sets. otelhttp and
// otelgrpc use it, too, and do not depend on this module.
var tracer = otel.Tracer("github.com/servetrace/servetrace/examples/instrumented")

// apps returns the two applications. The first calls words, a client of the second
// application in this process or another.
func apps(words translatev1.TranslatorServiceClient) []*serving.App {
	mux := http.NewServeMux()
	// The handler is inside the mux, so that the runtime finds the mux's patterns.
	mux.Handle("GET /translate/{word}", otelhttp.NewHandler(translate(words), "translate"))

	translator := serving.NewDeployment("Translator", nil, serving.WithStatsHandler(otelgrpc.NewServerHandler()))
	translatev1.RegisterTranslatorServiceServer(translator, dictionary{words: map[string]string{"cat": "Katze", "dog": "Hund"}})

	return []*serving.App{
		serving.NewApp("shop", serving.NewDeployment("Shop", mux)),
		serving.NewApp("words", translator),
	}
}

// dial returns a client with traced calls. Its connection lasts as long as the process.
func dial(addr string) (translatev1.TranslatorServiceClient, error) {
	conn, err := grpc.NewClient(addr, grpc.WithStatsHandler(otelgrpc.NewClientHandler()),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("words at %q: %w", addr, err)
	}
	return translatev1.NewTranslatorServiceClient(conn), nil
}

// translate answers with the translator's translation. Its context has otelhttp's span,
// which is the parent of the client's span.
func translate(words translatev1.TranslatorServiceClient) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx := metadata.AppendToOutgoingContext(r.Context(), "application", "words")
		answer, err := words.Translate(ctx, &translatev1.TranslateRequest{Word: r.PathValue("word")})
		if status.Code(err) == codes.NotFound {
			http.Error(w, "the word is not known", http.StatusNotFound)
			return nil
		}
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, answer.GetTranslation()+"\n")
		return err
	}
}

// dictionary is the gRPC service.
type dictionary struct {
	translatev1.UnimplementedTranslatorServiceServer

	words map[string]string
}

// Translate implements translatev1's server. Its context has otelgrpc's span.
func (d dictionary) Translate(ctx context.Context, in *translatev1.TranslateRequest) (*translatev1.TranslateResponse, error) {
	_, span := tracer.Start(ctx, "look_up")
	defer span.End()
	span.SetAttributes(attribute.String("word", in.GetWord()))
	translation, known := d.words[in.GetWord()]
	if !known {
		return nil, status.Error(codes.NotFound, "no such word")
	}
	return &translatev1.TranslateResponse{Translation: translation}, nil
}
