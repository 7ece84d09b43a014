package discovery

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/test/servingtest"
)

// logBuffer is a log for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns how often text stands in the log.
func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// dnsTest returns the lists of model.test, asked for every 10 ms.
func dnsTest(t *testing.T, server *servingtest.DNS, log *logBuffer) <-chan []Endpoint {
	t.Helper()
	source, err := Parse("dns://"+server.Addr()+"/model.test.:9100", Config{Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	source.(*dnsSource).every = 10 * time.Millisecond
	return watch(t, source)
}

func TestDNSFollowsTheName(t *testing.T) {
	server := servingtest.StartDNS(t, "model.test.", "10.0.0.2", "10.0.0.1", "fd00::1")
	lists := dnsTest(t, server, new(logBuffer))
	first := await(t, lists, "10.0.0.1:9100", "10.0.0.2:9100", "[fd00::1]:9100")
	if e := first[0]; !e.Serving || !e.Ready || e.Name != "" {
		t.Errorf("endpoint %+v", e)
	}
	server.Set(false, "10.0.0.3", "10.0.0.1")
	await(t, lists, "10.0.0.1:9100", "10.0.0.3:9100")
	server.Set(false, "10.0.0.1", "10.0.0.3") // no change
	server.Set(false, "10.0.0.4")
	if list := <-lists; len(list) != 1 || list[0].Addr != "10.0.0.4:9100" {
		t.Errorf("list %v after another order of the records, want the next change", list)
	}
}

// TestDNSKeepsTheListThroughFailures has two kinds of failure: a server that is at fault, and
// a name that does not exist.
func TestDNSKeepsTheListThroughFailures(t *testing.T) {
	server, log := servingtest.StartDNS(t, "model.test."), new(logBuffer)
	lists := dnsTest(t, server, log)
	asked := func(times int) {
		for range times {
			<-server.Asked
		}
	}
	asked(3)
	if got := log.count("discovery fails, and no process is known"); got != 1 {
		t.Errorf("%d lines of failure before the first list, want 1", got)
	}
	if want := "on " + server.Addr() + ": no such host"; log.count(want) != 1 {
		t.Errorf("the log does not have %q", want)
	}
	server.Set(false, "10.0.0.1")
	await(t, lists, "10.0.0.1:9100")
	for _, fail := range []bool{true, false} {
		server.Set(fail)
		asked(5)
		select {
		case list := <-lists:
			t.Errorf("list %v during a failure", list)
		default:
		}
		server.Set(false, "10.0.0.1")
		asked(5)
	}
	server.Set(false, "10.0.0.2")
	await(t, lists, "10.0.0.2:9100")
	if failures, ends := log.count("discovery fails, and the last list stays in use"), log.count("works again"); failures != 2 || ends != 3 {
		t.Errorf("%d lines of failure and %d of success, want 2 and 3", failures, ends)
	}
}

// TestDNSThatIsSilent: without an answer, the list stays, and the next answer counts.
func TestDNSThatIsSilent(t *testing.T) {
	server, log := servingtest.StartDNS(t, "model.test.", "10.0.0.1"), new(logBuffer)
	source, err := Parse("dns://"+server.Addr()+"/model.test.:9100", Config{Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	dns := source.(*dnsSource)
	dns.every, dns.timeout = 10*time.Millisecond, 100*time.Millisecond
	lists := watch(t, source)
	await(t, lists, "10.0.0.1:9100")
	server.Silence(true)
	for log.count("discovery fails") == 0 {
		<-server.Asked
	}
	if want := "on " + server.Addr() + ": "; log.count(want) != 1 {
		t.Errorf("the log does not have %q", want)
	}
	select {
	case list := <-lists:
		t.Errorf("list %v without an answer", list)
	default:
	}
	server.Set(false, "10.0.0.2")
	server.Silence(false)
	await(t, lists, "10.0.0.2:9100")
}

func TestDNSEndsDuringALookup(t *testing.T) {
	asked, over := make(chan struct{}, 10), make(chan struct{})
	t.Cleanup(func() { close(over) })
	// Connections without an answer. The resolver waits for it after the end of Watch, too.
	silent := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		select {
		case <-over:
			return nil, net.ErrClosed
		case asked <- struct{}{}:
		}
		near, far := net.Pipe()
		go func() {
			<-over
			_ = far.Close() // a pipe: it cannot fail
		}()
		return near, nil
	}}
	source, err := Parse("dns:///model.test.:9100", Config{})
	if err != nil {
		t.Fatal(err)
	}
	source.(*dnsSource).resolver = silent
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		source.Watch(ctx, func(list []Endpoint) { t.Errorf("list %v without an answer", list) }, func(err error) { t.Errorf("failure %v without an answer", err) })
	})
	<-asked
	cancel()
	watching.Wait()
}
