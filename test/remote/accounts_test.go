package remote_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/servetrace/servetrace/test/testplugin"
)

// traced is a process with a plugin that records what it delivers.
type traced struct {
	*process
	plugin string
}

func startTraced(t *testing.T, environ ...string) traced {
	t.Helper()
	plugin := testplugin.Install(t, "record")
	return traced{start(t, append(environ, "SERVE_TRACING_EXPORTER_PLUGIN=record="+plugin, "SERVE_TRACING_PLUGIN_WRITABLE=allow")...), plugin}
}

// delivered returns how often each span was delivered, by its id.
func (p traced) delivered(t *testing.T) map[string]int {
	t.Helper()
	times := map[string]int{}
	for _, b := range testplugin.Received(t, p.plugin) {
		for _, id := range b.IDs {
			times[id]++
		}
	}
	return times
}

// spansOfRank is the number of spans of a request that Ingress, Model and Ranker serve.
const spansOfRank = 7

// ask sends a request to a process, and returns an error unless it is answered well.
func ask(ctx context.Context, p *process, id string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.ready.HTTP+"/?id="+id, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// TestAccountsOfAllProcesses kills one of three processes under load. In the others, each
// span that ended was delivered once, and their accounts say so. The killed process has
// delivered only spans that had ended.
func TestAccountsOfAllProcesses(t *testing.T) {
	const runs, here = "SERVE_DEPLOYMENTS=Model,Ranker", "SERVE_CALL_ADDR=127.0.0.1:0"
	a, b := startTraced(t, runs, here), startTraced(t, runs, here)
	ingress := startTraced(t, "SERVE_DEPLOYMENTS=Ingress", "SERVE_REMOTE=Model=static:///"+a.ready.Calls+","+b.ready.Calls)
	l := startLoad(t, 8, func(ctx context.Context, id string) error { return ask(ctx, ingress.process, "rank"+id) })
	defer http.DefaultClient.CloseIdleConnections()
	l.more(100)
	a.kill()
	l.more(100)
	ok, failed := l.end()
	if len(failed) > slots {
		t.Errorf("%d calls failed: %v", len(failed), failed)
	}
	ingress.stop()
	b.stop()
	all, sum, held := 0, 0, 0
	for name, p := range map[string]traced{"ingress": ingress, "a": a, "b": b} {
		ended, _ := p.all("span")
		delivered := p.delivered(t)
		all, sum = all+len(ended), sum+len(delivered)
		for _, s := range ended {
			switch n := delivered[s.Span]; {
			case n > 1:
				t.Errorf("%s: span %s was delivered %d times", name, s.ID, n)
			case n == 0 && p == a:
				held++ // lost with the process
			case n == 0:
				t.Errorf("%s: span %s was not delivered", name, s.ID)
			}
		}
		if p == a {
			continue
		}
		account, n := p.await("account", ""), uint64(len(ended))
		if account.Ended != n || account.Delivered != n {
			t.Errorf("%s: %d spans ended, account %+v", name, n, account)
		}
	}
	if sum+held != all || all < spansOfRank*ok {
		t.Errorf("%d spans ended in all processes for %d calls, %d were delivered, %d were lost with a process", all, ok, sum, held)
	}
}
