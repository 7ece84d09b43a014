package pluginsdk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The smallest plugin: it prints the name of each span. The body of this
// example is the whole of its func main.
func Example() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "names",
		Exporter: func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
				for span := range b.Spans() {
					fmt.Fprintln(s.Stdout, span.Name())
				}
				return nil
			}), nil
		},
	})
}

// A plugin with processors before an exporter that posts OTLP to a back end. The host
// does the rest: batching, retries, restarts and delivery accounting.
func Example_processorsAndExporter() {
	pluginsdk.Main(pluginsdk.Spec{
		Name:        "acme",
		Version:     "1.0.0",
		Description: "sends spans to Acme",
		Env:         []string{"ACME_*"},
		Processors: []pluginsdk.NewProcessor{
			pluginsdk.EachSpan("health", dropHealthChecks),
			pluginsdk.EachSpan("redact", redactUser),
		},
		Exporter: newAcme,
	})
}

func dropHealthChecks(span pluginsdk.Span) error {
	if route, _ := span.Attribute("http.route"); route.AsString() == "/healthz" {
		span.Drop()
	}
	return nil
}

func redactUser(span pluginsdk.Span) error {
	if _, ok := span.Attribute("user.email"); ok {
		span.SetAttributes(attribute.String("user.email", "redacted"))
	}
	return nil
}

// acme is an exporter. One client serves all calls, which overlap.
type acme struct {
	client   http.Client
	endpoint string
	key      string
}

func newAcme(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	endpoint := s.Getenv("ACME_ENDPOINT")
	if endpoint == "" {
		return nil, &pluginsdk.ConfigError{Path: "ACME_ENDPOINT", Err: errors.New("is not set: want the URL of the collector")}
	}
	return &acme{endpoint: endpoint, key: s.Getenv("ACME_KEY")}, nil
}

// Export forwards the batch as it came, edits of the processors included.
func (a *acme) Export(ctx context.Context, b *pluginsdk.Batch) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.endpoint, strings.NewReader(string(b.Bytes())))
	if err != nil {
		return pluginsdk.Permanent(err)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Authorization", "Bearer "+a.key)
	response, err := a.client.Do(request)
	if err != nil {
		return err // the host tries again
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode < 300:
		return nil
	case response.StatusCode == http.StatusTooManyRequests:
		wait, _ := pluginsdk.ReadRetryAfter(response.Header)
		return pluginsdk.RetryAfter(errors.New(response.Status), wait)
	case response.StatusCode < 500:
		return pluginsdk.Permanent(errors.New(response.Status))
	}
	return errors.New(response.Status)
}

func (a *acme) Shutdown(context.Context) error {
	a.client.CloseIdleConnections()
	return nil
}

// Run answers flags without a process of its own, and prints its usage if no host has
// started it.
func ExampleRun() {
	spec := pluginsdk.Spec{Name: "acme", Version: "1.0.0", Exporter: newAcme}
	env := pluginsdk.Env{Args: []string{"acme", "--version"}, Stdout: os.Stdout}
	if err := pluginsdk.Run(context.Background(), env, spec); err != nil {
		fmt.Println(err)
	}
	env.Args = nil
	fmt.Println(pluginsdk.Run(context.Background(), env, spec))
	// Output:
	// acme 1.0.0
	// not started by a servetrace host
}

// A processor is tested without a host: build a batch, process it, look at the
// spans that are left.
func ExampleNewBatch() {
	newProcessor := pluginsdk.EachSpan("health", dropHealthChecks)
	processor, err := newProcessor(context.Background(), pluginsdk.Setup{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := exampleBatch("/healthz", "/predict")
	if err := processor.Process(context.Background(), batch); err != nil {
		fmt.Println(err)
		return
	}
	for span := range batch.Spans() {
		route, _ := span.Attribute("http.route")
		fmt.Println(span.Name(), route.AsString())
	}
	// Output:
	// GET /predict
}

// exampleBatch has a span for each route.
func exampleBatch(routes ...string) *pluginsdk.Batch {
	scope := &tracepb.ScopeSpans{}
	for _, route := range routes {
		scope.Spans = append(scope.Spans, &tracepb.Span{Name: "GET", Attributes: []*commonpb.KeyValue{text("http.route", route)}})
	}
	encoded, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{scope}}}})
	if err != nil {
		panic(err) // the messages above can be encoded
	}
	return pluginsdk.NewBatch(encoded)
}

func ExampleEachSpan() {
	newProcessor := pluginsdk.EachSpan("shout", func(span pluginsdk.Span) error {
		span.SetName(strings.ToUpper(span.Name()))
		return nil
	})
	processor, _ := newProcessor(context.Background(), pluginsdk.Setup{})
	batch := exampleBatch("/")
	for span := range batch.Spans() {
		span.SetName("quiet")
	}
	if err := processor.Process(context.Background(), batch); err != nil {
		fmt.Println(err)
	}
	for span := range batch.Spans() {
		fmt.Println(span.Name())
	}
	// Output: QUIET
}

func ExampleProcessorFunc() {
	// One edit of the resource reaches every span of the batch.
	newProcessor := pluginsdk.ProcessorFunc("region", func(_ context.Context, b *pluginsdk.Batch) error {
		for resource := range b.Resources() {
			resource.SetAttributes(attribute.String("cloud.region", "eu-1"))
		}
		return nil
	})
	processor, _ := newProcessor(context.Background(), pluginsdk.Setup{})
	batch := exampleBatch("/a", "/b")
	if err := processor.Process(context.Background(), batch); err != nil {
		fmt.Println(err)
	}
	for span := range batch.Spans() {
		region, _ := span.Resource().Attribute("cloud.region")
		fmt.Println(region.AsString())
	}
	// Output:
	// eu-1
	// eu-1
}

func ExamplePermanent() {
	err := pluginsdk.Permanent(errors.New("401 Unauthorized"))
	fmt.Println(err)
	// Output: 401 Unauthorized
}

func ExampleRetryAfter() {
	err := pluginsdk.RetryAfter(errors.New("429 Too Many Requests"), 30*time.Second)
	fmt.Println(err)
	// Output: 429 Too Many Requests
}

func ExampleReadRetryAfter() {
	answer := http.Header{
		"Retry-After": {"Mon, 02 Jan 2006 15:04:35 GMT"}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"},
	}
	fmt.Println(pluginsdk.ReadRetryAfter(answer))
	fmt.Println(pluginsdk.ReadRetryAfter(http.Header{"Retry-After": {"99999999999999999"}}))
	fmt.Println(pluginsdk.ReadRetryAfter(http.Header{"Retry-After": {"soon"}}))
	// Output:
	// 30s true
	// 24h0m0s true
	// 0s false
}

func ExamplePartial() {
	fmt.Println(pluginsdk.Partial(2, "older than 24 hours"))
	// Output: 2 spans rejected: older than 24 hours
}
