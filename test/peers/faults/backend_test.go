package faults

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"
)

// backend is a scripted receiver of OTLP, over HTTP and gRPC, and of the input of a Datadog
// agent.
type backend struct {
	mu     sync.Mutex
	script script
	calls  int
	has    map[string]int
	// http and grpc are its endpoints.
	http, grpc string
}

// script is the misbehaviour of the back end. The zero script has none.
type script struct {
	// http answers instead of the back end, with http.ErrAbortHandler by a panic.
	http func(w http.ResponseWriter, r *http.Request)
	// grpc is its error.
	grpc func(ctx context.Context) error
	// rejects are spans of each batch, with this message.
	rejects int
	message string
	// unsaid: it takes the batch, and then answers as http or grpc do.
	unsaid bool
}

func startBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{has: map[string]int{}}
	web := httptest.NewServer(b)
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	b.http = web.URL
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, &traceService{b: b})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	b.grpc = "http://" + listener.Addr().String()
	return b
}

// act changes the back end's script.
func (b *backend) act(s script) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.script = s
}

func (b *backend) acts() script {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	return b.script
}

// received gives the ids of the spans it took, and how often.
func (b *backend) received() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]int{}
	for id, n := range b.has {
		all[id] = n
	}
	return all
}

// take keeps all spans but the first so many.
func (b *backend) take(has map[string]int, rejects int) *coltracepb.ExportTraceServiceResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	rejected := 0
	for id := range has {
		if rejected < rejects {
			rejected++
			continue
		}
		b.has[id]++
	}
	answer := &coltracepb.ExportTraceServiceResponse{}
	if rejected > 0 {
		answer.PartialSuccess = &coltracepb.ExportTracePartialSuccess{RejectedSpans: int64(rejected), ErrorMessage: b.script.message}
	}
	return answer
}

// ids returns the span ids, each once.
func ids(list []*tracepb.ResourceSpans) map[string]int {
	all := map[string]int{}
	for _, resource := range list {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				all[hex.EncodeToString(span.GetSpanId())]++
			}
		}
	}
	return all
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the connection was cut
		}
		body = zipped
	}
	data, err := io.ReadAll(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var has map[string]int
	switch r.URL.Path {
	case "/info":
		_, _ = io.WriteString(w, `{"endpoints": ["/v0.4/traces"]}`) // a client that has not read it asks again
		return
	case "/v0.4/traces":
		var traces pb.Traces
		_, err = traces.UnmarshalMsg(data)
		has = agentIDs(traces)
	default:
		var request coltracepb.ExportTraceServiceRequest
		err = proto.Unmarshal(data, &request)
		has = ids(request.GetResourceSpans())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := b.acts()
	if s.http != nil {
		if s.unsaid {
			b.take(has, 0)
		}
		s.http(w, r)
		return
	}
	answer, err := proto.Marshal(b.take(has, s.rejects))
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer) // as above; an agent's client does not look at it
}

// agentIDs returns the ids of spans in Datadog's form.
func agentIDs(traces pb.Traces) map[string]int {
	all := map[string]int{}
	for _, chunk := range traces {
		for _, span := range chunk {
			all[fmt.Sprintf("%016x", span.GetSpanID())]++
		}
	}
	return all
}

type traceService struct {
	coltracepb.UnimplementedTraceServiceServer
	b *backend
}

func (s *traceService) Export(ctx context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	acts := s.b.acts()
	if acts.grpc != nil {
		if acts.unsaid {
			s.b.take(ids(r.GetResourceSpans()), 0)
		}
		if err := acts.grpc(ctx); err != nil {
			return nil, err
		}
	}
	return s.b.take(ids(r.GetResourceSpans()), acts.rejects), nil
}
