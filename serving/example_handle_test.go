package serving_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/servetrace/servetrace/serving"
)

// serve serves app on a free port until stop is called.
func serve(app *serving.App) (url string, stop func()) {
	server, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{app},
		serving.WithLogger(slog.New(slog.DiscardHandler)))
	ctx := context.Background()
	if err == nil {
		err = server.Start(ctx)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return "http://" + server.Addr().String(), func() { _ = server.Shutdown(ctx) }
}

// A deployment that greets asks another one for the name.
func ExampleAddFunction() {
	names := serving.NewDeployment("Names", nil)
	lookUp := serving.AddFunction(names, "look_up", func(_ context.Context, id int) (string, error) {
		return map[int]string{1: "Ada", 2: "Grace"}[id], nil
	})
	greeter := serving.NewDeployment("Greeter", nil)
	greet := serving.AddFunction(greeter, "", func(ctx context.Context, id int) (string, error) {
		name, err := lookUp.Call(ctx, id)
		return "hello, " + name, err
	})
	app := serving.NewApp("people", serving.NewDeployment("API", serving.JSON(greet.Call)),
		serving.WithDeployments(greeter, names))
	_, stop := serve(app)
	defer stop()

	text, err := greet.Call(context.Background(), 2)
	fmt.Println(text, err)
	// Output: hello, Grace <nil>
}

func ExampleAddStream() {
	counter := serving.NewDeployment("Counter", nil)
	squares := serving.AddStream(counter, "squares", func(_ context.Context, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range n {
				if !yield(i*i, nil) {
					return
				}
			}
		}
	})
	app := serving.NewApp("numbers", serving.NewDeployment("API", serving.JSONStream(squares.Stream)),
		serving.WithDeployments(counter))
	_, stop := serve(app)
	defer stop()

	for n, err := range squares.Stream(context.Background(), 1000) {
		if err != nil || n > 10 {
			break // the stream ends
		}
		fmt.Println(n)
	}
	// Output:
	// 0
	// 1
	// 4
	// 9
}

func ExampleJSON() {
	type point struct{ X, Y float64 }
	add := serving.JSON(func(_ context.Context, points []point) (point, error) {
		var sum point
		for _, p := range points {
			sum.X += p.X
			sum.Y += p.Y
		}
		return sum, nil
	})
	url, stop := serve(serving.NewApp("points", serving.NewDeployment("Adder", add)))
	defer stop()

	for _, body := range []string{`[{"X": 1}, {"X": 2, "Y": 3}]`, `{"X": 1}`} {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(resp.StatusCode, " ")
		_, _ = io.Copy(os.Stdout, resp.Body)
		_ = resp.Body.Close()
	}
	// Output:
	// 200 {"X":3,"Y":3}
	// 400 request body: got a JSON object, want one for []serving_test.point
}
