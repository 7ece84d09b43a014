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

// tracer is OpenTelemetry's global one, as in any instrumented program.
var tracer = otel.Tracer("github.com/servetrace/servetrace/examples/batching")

// Text is what a client sends.
type Text struct {
	Text string `json:"text"`
}

// Score is the answer to one text.
type Score struct {
	Score float64 `json:"score"`
	// Together is how many texts were scored at a time.
	Together int `json:"together"`
}

// Word is a piece of a story.
type Word struct {
	Word string `json:"word"`
}

// app has two paths, and a batcher for each. The deployment takes as many
// requests as its batches hold.
func app(opts ...batching.Option) *serving.App {
	scores := batching.New("score", score, opts...)
	stories := batching.NewStream("continue", continueAll, opts...)

	mux := http.NewServeMux()
	mux.Handle("POST /score", serving.JSON(scores.Do))
	mux.Handle("POST /continue", serving.JSONStream(stories.Stream))
	return serving.NewApp("batching", serving.NewDeployment("Model", mux, serving.WithMaxOngoingRequests(100)))
}

// score is a model that takes a list: for it, one call with eight texts costs
// hardly more than with one.
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

// stepTime is what one step of continueAll costs, however many take part.
const stepTime = 20 * time.Millisecond

// continueAll is a model that writes word by word: each step gives one to every
// request that still wants one. A request that has all of its words, or whose
// client has left, takes part no more.
func continueAll(ctx context.Context, batch []*batching.Request[Text, Word]) error {
	ctx, span := tracer.Start(ctx, "decode")
	defer span.End()

	step := time.NewTicker(stepTime)
	defer step.Stop()
	for i := 0; len(batch) > 0; i++ {
		select {
		case <-step.C:
		case <-ctx.Done(): // everybody has left
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
