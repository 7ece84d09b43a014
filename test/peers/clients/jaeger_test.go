package clients

import (
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

// The whole way from a request to the tree in Jaeger, which is found by the trace id in the
// service's log.
func TestTraceOfTheLogIsATreeInJaeger(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			j := peer.StartJaeger(t)
			endpoint := j.HTTP()
			if protocol == "grpc" {
				endpoint = j.GRPC()
			}
			s := startHello(t, "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
			paths := []string{"/", "/fail"}
			for i, path := range paths {
				s.Get(path, "request")
				id := s.Await(s.Log, `msg=request .*\btrace_id=([0-9a-f]{32})`, i+1)[i]
				got := nodes(j.WaitTrace(id, hellotest.SpansOfRequest))
				wantChain(t, call{Trace: id, path: path}, got[id])
				if len(got) != 1 {
					t.Errorf("Jaeger's answer for trace %s has %d traces", id, len(got))
				}
			}
		})
	}
}
