package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync"

	"github.com/servetrace/servetrace/serving"
)

// app connects the deployments. Each gets the handles that it calls; in Ray Serve these
// are DeploymentHandle arguments of bind.
func app() *serving.App {
	tokenizer := serving.NewDeployment("Tokenizer", nil)
	tokens := serving.AddStream(tokenizer, "tokens", tokenize)

	shortener := serving.NewDeployment("Shortener", nil, serving.WithReplicas(2))
	shorten := serving.AddFunction(shortener, "shorten", Shortener{tokens}.Shorten)

	sentiment := serving.NewDeployment("Sentiment", nil)
	mood := serving.AddFunction(sentiment, "", judge)

	mux := http.NewServeMux()
	mux.Handle("POST /describe", serving.JSON(Gateway{shorten, mood}.Describe))
	return serving.NewApp("composition", serving.NewDeployment("Gateway", mux),
		serving.WithDeployments(shortener, tokenizer, sentiment))
}

// Text is a client's input.
type Text struct {
	Text string `json:"text"`
}

// Description is the answer.
type Description struct {
	Short string `json:"short"`
	Mood  string `json:"mood"`
}

// Gateway calls two deployments concurrently.
type Gateway struct {
	shorten *serving.Handle[string, string]
	mood    *serving.Handle[string, string]
}

// Describe passes its context to both calls. The context carries the trace. It ends
// when the client leaves, which ends both calls.
func (g Gateway) Describe(ctx context.Context, in Text) (Description, error) {
	var out Description
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() { out.Short, failed[0] = g.shorten.Call(ctx, in.Text) })
	both.Go(func() { out.Mood, failed[1] = g.mood.Call(ctx, in.Text) })
	both.Wait()
	return out, errors.Join(failed[:]...)
}

// Shortener is the middle of the chain.
type Shortener struct {
	tokens *serving.StreamHandle[string, string]
}

// Shorten returns the first sentence. When it leaves the loop, the tokenizer ends and
// its slot is free.
func (s Shortener) Shorten(ctx context.Context, text string) (string, error) {
	var words []string
	for token, err := range s.tokens.Stream(ctx, text) {
		if err != nil {
			return "", err
		}
		words = append(words, token)
		if strings.HasSuffix(token, ".") {
			break
		}
	}
	return strings.Join(words, " "), nil
}

// errEmpty is returned to Gateway, and becomes status 500 for the client.
var errEmpty = errors.New("the text has no words")

// tokenize streams the words of text.
func tokenize(_ context.Context, text string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		empty := true
		for word := range strings.FieldsSeq(text) {
			empty = false
			if !yield(word, nil) {
				return
			}
		}
		if empty {
			yield("", errEmpty)
		}
	}
}

// judge stands for a model that answers with a single word.
func judge(_ context.Context, text string) (string, error) {
	if strings.Contains(text, "good") {
		return "cheerful", nil
	}
	return "plain", nil
}
