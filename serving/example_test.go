package serving_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/servetrace/servetrace/serving"
)

func ExampleNew() {
	hello := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		_, err := fmt.Fprintf(w, "hello, %s", r.PathValue("name"))
		return err
	})
	mux := http.NewServeMux()
	mux.Handle("GET /hello/{name}", hello)

	app := serving.NewApp("greeter", serving.NewDeployment("Hello", mux, serving.WithReplicas(2)))
	server, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{app},
		serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if err := server.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Shutdown(ctx) }()

	resp, err := http.Get("http://" + server.Addr().String() + "/hello/world")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(os.Stdout, resp.Body)
	// Output: hello, world
}
