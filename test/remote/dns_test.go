package remote_test

import (
	"context"
	"net"
	"testing"

	"github.com/servetrace/servetrace/test/servingtest"
)

// TestProcessesByDNS finds processes by their name under load. A process is added to the
// name, and a process that is removed from it is killed. No request fails.
func TestProcessesByDNS(t *testing.T) {
	a := callee(t, "127.0.0.2:0")
	_, port, err := net.SplitHostPort(a.ready.Calls)
	if err != nil {
		t.Fatal(err)
	}
	b := callee(t, "127.0.0.3:"+port)
	server := servingtest.StartDNS(t, "model.test.", "127.0.0.2", "127.0.0.3")
	ingress := start(t, "SERVE_DEPLOYMENTS=Ingress", "SERVE_REMOTE=Model=dns://"+server.Addr()+"/model.test.:"+port)
	l := startLoad(t, 4, func(ctx context.Context, id string) error { return ask(ctx, ingress, id) })
	a.await("ran", "")
	b.await("ran", "")

	c := callee(t, "127.0.0.4:"+port)
	server.Set(false, "127.0.0.2", "127.0.0.3", "127.0.0.4")
	c.await("ran", "")
	server.Set(true) // the list stays in use
	l.more(200)

	server.Set(false, "127.0.0.3", "127.0.0.4")
	for before := -1; before < len(ran(a)); l.more(100) { // a random choice of 100 processes would have it
		before = len(ran(a))
	}
	a.kill()
	l.more(200)
	if _, failed := l.end(); len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
	checkRuns(t, l, a, b, c)
}
