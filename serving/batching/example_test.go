package batching_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
)

// serve has a handler answer as many requests at once as it has paths, and gives
// the bodies.
func serve(handler serving.HandlerFunc, paths ...string) []string {
	app := serving.NewApp("example", serving.NewDeployment("D", handler))
	server, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{app},
		serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return []string{err.Error()}
	}
	ctx := context.Background()
	if err := server.Start(ctx); err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = server.Shutdown(ctx) }()
	defer http.DefaultClient.CloseIdleConnections()

	bodies := make([]string, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		wg.Go(func() {
			resp, err := http.Get("http://" + server.Addr().String() + path)
			if err != nil {
				bodies[i] = err.Error()
				return
			}
			defer func() { _ = resp.Body.Close() }()
			body, _ := io.ReadAll(resp.Body)
			bodies[i] = string(body)
		})
	}
	wg.Wait()
	return bodies
}

func ExampleNew() {
	double := batching.New("double", func(_ context.Context, ins []int) ([]int, error) {
		outs := make([]int, len(ins))
		for i, in := range ins {
			outs[i] = 2 * in
		}
		return outs, nil
	}, batching.WithMaxBatchSize(3), batching.WithWaitTimeout(time.Minute))

	handler := func(w http.ResponseWriter, r *http.Request) error {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			return err
		}
		out, err := double.Do(r.Context(), n)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(w, out)
		return err
	}
	// Three requests, one call of the function.
	fmt.Println(serve(handler, "/?n=1", "/?n=2", "/?n=3"))
	// Output: [2 4 6]
}

func ExampleNewStream() {
	// Each step gives the next letter to every request that wants one more.
	spell := batching.NewStream("spell", func(_ context.Context, batch []*batching.Request[string, byte]) error {
		for i := 0; len(batch) > 0; i++ {
			var rest []*batching.Request[string, byte]
			for _, r := range batch {
				if i == len(r.In) {
					r.End(nil)
					continue
				}
				if r.Send(r.In[i]) {
					rest = append(rest, r)
				}
			}
			batch = rest
		}
		return nil
	}, batching.WithMaxBatchSize(2), batching.WithWaitTimeout(time.Minute))

	handler := func(w http.ResponseWriter, r *http.Request) error {
		for letter, err := range spell.Stream(r.Context(), r.URL.Query().Get("word")) {
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%c.", letter); err != nil {
				return nil // the client has gone, and the loop's end tells the batch
			}
		}
		return nil
	}
	fmt.Println(serve(handler, "/?word=go", "/?word=trace"))
	// Output: [g.o. t.r.a.c.e.]
}
