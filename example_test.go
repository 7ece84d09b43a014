package servetrace_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

// A service: a handler, a deployment, an app. This service stops by itself; a real
// service waits for a signal.
func ExampleRun() {
	hello := serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		_, err := io.WriteString(w, "Hello world!\n")
		return err
	})
	app := serving.NewApp("default", serving.NewDeployment("HelloWorld", hello, serving.WithReplicas(2)))

	env := map[string]string{"SERVE_HTTP_PORT": "0"} // servetrace.LoadConfig reads the real one
	cfg, err := servetrace.ConfigFromEnv(func(key string) string { return env[key] })
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ready := func(addr net.Addr) {
		defer stop()
		resp, err := http.Get("http://" + addr.String() + "/")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(os.Stdout, resp.Body)
	}
	err = servetrace.Run(ctx, cfg, []*serving.App{app},
		servetrace.WithReady(ready), servetrace.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(err)
	// Output:
	// Hello world!
	// <nil>
}

// A whole program, as in examples/hello. It serves until SIGTERM or SIGINT.
func ExampleMain() {
	hello := serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		_, err := io.WriteString(w, "Hello world!\n")
		return err
	})
	servetrace.Main(serving.NewApp("default", serving.NewDeployment("HelloWorld", hello)))
}
