package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/servetrace/servetrace/serving"
)

// app connects the two deployments.
func app(pause time.Duration) *serving.App {
	generator := serving.NewDeployment("Generator", nil)
	g := Gateway{serving.AddStream(generator, "generate", Generator{pause}.Generate)}

	mux := http.NewServeMux()
	mux.Handle("GET /events", serving.HandlerFunc(g.Events))
	mux.Handle("GET /text", serving.HandlerFunc(g.Text))
	mux.HandleFunc("GET /{$}", page)
	return serving.NewApp("streaming", serving.NewDeployment("Gateway", mux),
		serving.WithDeployments(generator), serving.WithRequestTimeout(0)) // a stream has no time limit
}

// Generator stands for a model that generates word by word.
type Generator struct{ pause time.Duration }

// Generate yields words about a topic. The topic "everything" never ends. The context
// ends when the client leaves.
func (g Generator) Generate(ctx context.Context, about string) iter.Seq2[string, error] {
	words := strings.Fields("What there is to say about " + about + " has been said.")
	return func(yield func(string, error) bool) {
		timer := time.NewTicker(g.pause)
		defer timer.Stop()
		for i := 0; i < len(words) || about == "everything"; i++ {
			select {
			case <-timer.C:
			case <-ctx.Done():
				yield("", context.Cause(ctx))
				return
			}
			if !yield(words[i%len(words)], nil) {
				return
			}
		}
	}
}

// Gateway sends the words to the client.
type Gateway struct {
	words *serving.StreamHandle[string, string]
}

// Events sends each word as a server-sent event, and then an event named "end", because
// EventSource would reconnect otherwise. The runtime sends each complete event at once,
// without a Flush.
//
// The headers are sent first, so that the page knows at once that it is connected. A
// later failure cuts the stream: a client without an "end" event knows that there was
// an error.
func (g Gateway) Events(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	for word, err := range g.words.Stream(r.Context(), r.FormValue("about")) {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", word); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "event: end\ndata: \n\n")
	return err
}

// Text sends the words as plain text. Here the handler itself must flush each part.
func (g Gateway) Text(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := http.NewResponseController(w)
	for word, err := range g.words.Stream(r.Context(), r.FormValue("about")) {
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, word+"\n"); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, `<!doctype html><title>streaming</title><p id="said"></p><script>
const events = new EventSource("events?about=the+sea");
events.onmessage = e => said.append(e.data + " ");
events.addEventListener("end", () => events.close());
</script>`) // fails if the client has left
}
