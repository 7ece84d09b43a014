package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/examples/grpc/translatev1"
	"github.com/servetrace/servetrace/serving"
)

func app() *serving.App {
	// A stream occupies a slot in a replica until it ends, so the limit is higher than the
	// default of five.
	d := serving.NewDeployment("Translator", nil, serving.WithReplicas(2), serving.WithMaxOngoingRequests(100))
	translatev1.RegisterTranslatorServiceServer(d, translator{})
	return serving.NewApp("default", d)
}

// german is the dictionary.
var german = map[string]string{"cat": "Katze", "dog": "Hund", "house": "Haus", "trace": "Spur"}

// translator implements the service. Its replicas share it.
type translator struct {
	translatev1.UnimplementedTranslatorServiceServer
}

// lookUp finds a translation, under a separate span.
func lookUp(ctx context.Context, word string) (translation string, known bool) {
	_, span := otel.Tracer("examples/grpc").Start(ctx, "look up")
	defer span.End()
	translation, known = german[word]
	span.SetAttributes(attribute.String("word", word), attribute.Bool("known", known))
	return translation, known
}

// Translate implements [translatev1.TranslatorServiceServer].
func (translator) Translate(ctx context.Context, in *translatev1.TranslateRequest) (*translatev1.TranslateResponse, error) {
	if in.GetWord() == "" {
		return nil, errors.New("there is no word to translate") // INTERNAL, with this text
	}
	translation, known := lookUp(ctx, in.GetWord())
	if !known {
		return nil, status.Errorf(codes.NotFound, "the word %q is not known", in.GetWord())
	}
	return &translatev1.TranslateResponse{Translation: translation}, nil
}

// ListWords implements [translatev1.TranslatorServiceServer].
func (translator) ListWords(_ *translatev1.ListWordsRequest, stream grpc.ServerStreamingServer[translatev1.ListWordsResponse]) error {
	for _, word := range slices.Sorted(maps.Keys(german)) {
		if err := stream.Send(&translatev1.ListWordsResponse{Word: word, Translation: german[word]}); err != nil {
			return err
		}
	}
	return nil
}

// CountWords implements [translatev1.TranslatorServiceServer].
func (translator) CountWords(stream grpc.ClientStreamingServer[translatev1.CountWordsRequest, translatev1.CountWordsResponse]) error {
	var sum translatev1.CountWordsResponse
	for {
		in, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return stream.SendAndClose(&sum)
		case err != nil:
			return err
		}
		sum.Words++
		if _, known := lookUp(stream.Context(), in.GetWord()); known {
			sum.Known++
		}
	}
}

// Converse implements [translatev1.TranslatorServiceServer].
func (translator) Converse(stream grpc.BidiStreamingServer[translatev1.ConverseRequest, translatev1.ConverseResponse]) error {
	for {
		in, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		translation, _ := lookUp(stream.Context(), in.GetWord())
		if err := stream.Send(&translatev1.ConverseResponse{Translation: translation}); err != nil {
			return err
		}
	}
}
