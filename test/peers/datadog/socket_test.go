package datadog

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

// TestSocket: over a Unix socket, and again when the agent was away.
func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "dd-") // the test's own folder is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "apm.socket")
	a := peer.StartDatadogAgent(t, peer.WithSocket(socket))
	p := plugintest.Run(t, spec, plugintest.WithEnv("DD_TRACE_AGENT_URL=unix://"+socket))
	request := corpus()
	n := len(spansOf(request))
	if answer, err := p.Export(t.Context(), request); err != nil || !answer.Delivered() {
		t.Fatalf("answer is %v, %v", answer, err)
	}
	a.WaitSpans(n)
	a.Stop()
	if answer, err := p.Export(t.Context(), request); err != nil || answer.Delivered() || !answer.Retryable {
		t.Fatalf("answer is %v, %v, while the agent is down", answer, err)
	}
	a.Restart()
	if answer, err := p.Export(t.Context(), request); err != nil || !answer.Delivered() {
		t.Fatalf("answer is %v, %v, when it is back", answer, err)
	}
	if got := len(a.WaitSpans(2 * n)); got != 2*n {
		t.Errorf("the agent has %d spans, want %d", got, 2*n)
	}
}
