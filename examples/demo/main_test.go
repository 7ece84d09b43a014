package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
	"github.com/servetrace/servetrace/serving"
)

// TestMain lets this test binary also be the console plugin, and services that are like
// hello or have a fault: the tests are about the demo's verdict. `make demo` shows that
// hello passes.
func TestMain(m *testing.M) {
	role := filepath.Base(os.Args[0])
	if role == "console" {
		pluginsdk.Main(pluginsdk.Spec{
			Name: "console", Env: append(consoleexporter.EnvPatterns(), processors.EnvRayContext),
			Processors: []pluginsdk.NewProcessor{processors.Configured}, Exporter: consoleexporter.New,
		})
	}
	if fault, ok := strings.CutPrefix(role, "service-"); ok {
		os.Exit(serviceMain(fault))
	}
	os.Exit(m.Run())
}

// serviceMain serves hello with a fault.
func serviceMain(fault string) int {
	cfg, err := servetrace.LoadConfig()
	if err == nil && fault == "start" {
		err = fmt.Errorf("it does not start")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cfg.Serving.HTTPAddr = "127.0.0.1:0"
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", handler(fault, codes.Ok, nil, "Hello world!\n"))
	mux.Handle("GET /stream", handler(fault, codes.Unset, nil, "one\n", "two\n", "three\n"))
	broken := fmt.Errorf("model not found")
	if fault == "exception" {
		broken = fmt.Errorf("another text")
	}
	mux.Handle("GET /fail", handler(fault, codes.Error, broken))
	app := serving.NewApp("default", serving.NewDeployment("HelloWorld", mux, serving.WithReplicas(2)))
	err = servetrace.Run(context.Background(), cfg, []*serving.App{app})
	if err != nil || fault == "status" {
		return 3
	}
	return 0
}

// handler writes lines under its span, or fails.
func handler(fault string, code codes.Code, err error, lines ...string) http.Handler {
	return serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		ctx := r.Context()
		if fault == "parent" {
			ctx = context.WithoutCancel(context.Background())
		}
		_, span := otel.Tracer("service").Start(ctx, "application_span")
		defer span.End()
		span.SetAttributes(attribute.String("deployment", "HelloWorld"))
		if fault == "parent" { // so that it still counts as the request's
			span.SetAttributes(attribute.String("serve.request_id", r.Header.Get("X-Request-ID")))
		}
		if fault == "extra" {
			for range spansPerRequest { // a batch of their own
				_, extra := otel.Tracer("service").Start(ctx, "extra")
				extra.End()
			}
		}
		if fault == "body" {
			lines = []string{"hello?"}
		}
		span.SetStatus(code, "")
		if err != nil {
			span.RecordError(err)
		}
		for _, line := range lines {
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
		return err
	})
}

// demo runs the demo against the service with this fault, and returns its output.
func demo(t *testing.T, fault string) (string, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	service, console := filepath.Join(dir, "service-"+fault), filepath.Join(dir, "console")
	for _, path := range []string{service, console} {
		if err := os.Symlink(exe, path); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	t.Setenv("SERVE_TRACING_SAMPLING_RATIO", "0") // must not reach the service
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("COLUMNS", "120")
	var out strings.Builder
	err = run([]string{"--hello", service, "--plugin", console}, &out, io.Discard)
	return out.String(), err
}

func TestDemoPasses(t *testing.T) {
	out, err := demo(t, "none")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, text := range []string{
		"proxy_http_request HelloWorld GET /fail           server    ERROR ",
		"         ✗ model not found  *errors.errorString",
		"trace 4bf92f3577b34da6a3ce929d0e0e4736  4 spans  ",
		"  ray.request_id=demo-4  ",
		`    "name": "application_span",`,
		`        "ray.request_id": "demo-4"`,
		"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"-> 500 Internal Server Error, X-Request-ID demo-4",
		"\n   └─ replica_handle_request HelloWorld __call__  server ",
		"All checks passed: 4 requests, 16 spans, as drawings and as JSON",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in:\n%s", text, out)
		}
	}
}

func TestDemoFails(t *testing.T) {
	for fault, want := range map[string]string{
		"body":      "a plain request: body is hello\\?, want Hello world!",
		"exception": `span "application_span": exception is another text, want model not found`,
		"parent":    `2 spans have the parent "", want a chain`,
		"extra":     `drawing .* of request "demo-1" was not expected`,
		"status":    "the service ended: exit status 3",
		"start":     "start hello: exit status 1\nit ended before it accepted requests\nit does not start",
	} {
		t.Run(fault, func(t *testing.T) {
			out, err := demo(t, fault)
			if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
				t.Errorf("error %v\nwant one with %q\n%s", err, want, out)
			}
		})
	}
}

func TestDemoNeedsItsPrograms(t *testing.T) {
	err := run([]string{"--hello", filepath.Join(t.TempDir(), "hello")}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "build it first: make build") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}
