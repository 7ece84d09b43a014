package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
)

// tracer uses OpenTelemetry's global provider, as in any instrumented program.
var tracer = otel.Tracer("github.com/servetrace/servetrace/examples/batching")

// Text is a client's input.
type Text struct {
	Text string `json:"text"`
}

// Score is the answer to a text.
type Score struct {
	Score float64 `json:"score"`
	// Together is the number of texts in the batch.
	Together int `json:"together"`
}

// Word is a part of a story.
type Word struct {
	Word string `json:"word"`
}

// app returns the application: two paths with a batcher each. The deployment accepts as
// many requests as its batches hold.
func app(opts ...batching.Option) *serving.App {
	scores := batching.New("score", score, opts...)
	stories := batching.NewStream("continue", continueAll, opts...)

	mux := http.NewServeMux()
	mux.Handle("POST /score", serving.JSON(scores.Do))
	mux.Handle("POST /continue", serving.JSONStream(stories.Stream))
	return serving.NewApp("batching", serving.NewDeployment("Model", mux, serving.WithMaxOngoingRequests(100)))
}

// score is a model for lists of texts. A call with eight texts costs hardly more than a
// call with a single text.
func score(ctx context.Context, texts []Text) ([]Score, error) {
	_, span := tracer.Start(ctx, "forward")
	defer span.End()
	span.SetAttributes(attribute.Int("texts", len(texts)))

	scores := make([]Score, len(texts))
	for i, t := range texts {
		words := strings.Fields(t.Text)
		for _, w := range words {
			if strings.HasPrefix(w, "good") {
				scores[i].Score += 1 / float64(len(words))
			}
		}
		scores[i].Together = len(texts)
	}
	return scores, nil
}

// stepTime is the duration of a step of continueAll, for any number of requests.
const stepTime = 20 * time.Millisecond

// continueAll is a model that writes word by word. Each step produces a word for every
// remaining request. A request leaves when it has all its words, or its client has
// left.
func continueAll(ctx context.Context, batch []*batching.Request[Text, Word]) error {
	ctx, span := tracer.Start(ctx, "decode")
	defer span.End()

	step := time.NewTicker(stepTime)
	defer step.Stop()
	for i := 0; len(batch) > 0; i++ {
		select {
		case <-step.C:
		case <-ctx.Done(): // all clients have left
			return ctx.Err()
		}
		rest := batch[:0]
		for _, r := range batch {
			words := strings.Fields(r.In.Text)
			if i == len(words) {
				r.End(nil)
				continue
			}
			if r.Send(Word{strings.ToUpper(words[i])}) {
				rest = append(rest, r)
			}
		}
		batch = rest
	}
	return nil
}
