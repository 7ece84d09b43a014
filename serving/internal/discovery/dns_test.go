package discovery

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer is a DNS server on loopback with one name.
type dnsServer struct {
	name string
	conn net.PacketConn
	done chan struct{}

	mu sync.Mutex
	// addrs are the records of the name. Without any, the server has no such name.
	addrs []string
	// fail lets the server answer SERVFAIL.
	fail bool
	// silent lets the server keep its answers.
	silent bool
	kept   []func()
	// asked receives a value for each question about IPv4 addresses, if it has room.
	asked chan struct{}
}

func startDNS(t *testing.T, name string, addrs ...string) *dnsServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{name: name, conn: conn, done: make(chan struct{}), addrs: addrs, asked: make(chan struct{}, 1)}
	go s.serve(t)
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-s.done
	})
	return s
}

func (s *dnsServer) serve(t *testing.T) {
	defer close(s.done)
	buf := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		answer, err := s.answer(buf[:n])
		if err != nil {
			t.Errorf("DNS server: %v", err)
			return
		}
		s.send(func() {
			if _, err := s.conn.WriteTo(answer, from); err != nil {
				t.Logf("DNS server: %v", err)
			}
		})
	}
}

// send sends an answer, or keeps it.
func (s *dnsServer) send(answer func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		s.kept = append(s.kept, answer)
		return
	}
	answer()
}

func (s *dnsServer) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
	q := m.Questions[0]
	switch {
	case s.fail:
		m.RCode = dnsmessage.RCodeServerFailure
	case q.Name.String() != s.name || len(s.addrs) == 0:
		m.RCode = dnsmessage.RCodeNameError
	}
	if m.RCode == dnsmessage.RCodeSuccess {
		for _, addr := range s.addrs {
			header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
			switch ip := netip.MustParseAddr(addr); {
			case ip.Is4() && q.Type == dnsmessage.TypeA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: ip.As4()}})
			case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
			}
		}
	}
	if q.Type == dnsmessage.TypeA {
		select {
		case s.asked <- struct{}{}:
		default:
		}
	}
	return m.Pack()
}

// set replaces the records, and whether the server fails.
func (s *dnsServer) set(fail bool, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.addrs = fail, addrs
}

// silence sets whether the server keeps its answers. It sends what it has kept when it no
// longer does.
func (s *dnsServer) silence(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = yes
	if !yes {
		for _, answer := range s.kept {
			answer()
		}
		s.kept = nil
	}
}

// resolver asks this server alone.
func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

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
func dnsTest(t *testing.T, server *dnsServer, log *logBuffer) <-chan []Endpoint {
	t.Helper()
	source, err := Parse("dns:///model.test.:9100", Config{Resolver: server.resolver(), Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	source.(*dnsSource).every = 10 * time.Millisecond
	return watch(t, source)
}

func TestDNSFollowsTheName(t *testing.T) {
	server := startDNS(t, "model.test.", "10.0.0.2", "10.0.0.1", "fd00::1")
	lists := dnsTest(t, server, new(logBuffer))
	first := await(t, lists, "10.0.0.1:9100", "10.0.0.2:9100", "[fd00::1]:9100")
	if e := first[0]; !e.Serving || !e.Ready || e.Terminating || e.Name != "" {
		t.Errorf("endpoint %+v", e)
	}
	server.set(false, "10.0.0.3", "10.0.0.1")
	await(t, lists, "10.0.0.1:9100", "10.0.0.3:9100")
	server.set(false, "10.0.0.1", "10.0.0.3") // no change
	server.set(false, "10.0.0.4")
	if list := <-lists; len(list) != 1 || list[0].Addr != "10.0.0.4:9100" {
		t.Errorf("list %v after another order of the records, want the next change", list)
	}
}

// TestDNSKeepsTheListThroughFailures has two kinds of failure: a server that is at fault, and
// a name that does not exist.
func TestDNSKeepsTheListThroughFailures(t *testing.T) {
	server, log := startDNS(t, "model.test."), new(logBuffer)
	lists := dnsTest(t, server, log)
	asked := func(times int) {
		for range times {
			<-server.asked
		}
	}
	asked(3)
	if got := log.count("discovery fails"); got != 1 {
		t.Errorf("%d lines of failure before the first list, want 1", got)
	}
	server.set(false, "10.0.0.1")
	await(t, lists, "10.0.0.1:9100")
	for _, fail := range []bool{true, false} {
		server.set(fail)
		asked(5)
		select {
		case list := <-lists:
			t.Errorf("list %v during a failure", list)
		default:
		}
		server.set(false, "10.0.0.1")
		asked(5)
	}
	server.set(false, "10.0.0.2")
	await(t, lists, "10.0.0.2:9100")
	if failures, ends := log.count("discovery fails"), log.count("works again"); failures != 3 || ends != 3 {
		t.Errorf("%d lines of failure and %d of success, want 3 of each", failures, ends)
	}
}

// TestDNSThatIsSilent: without an answer, the list stays, and the next answer counts.
func TestDNSThatIsSilent(t *testing.T) {
	server, log := startDNS(t, "model.test.", "10.0.0.1"), new(logBuffer)
	source, err := Parse("dns:///model.test.:9100", Config{Resolver: server.resolver(), Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	dns := source.(*dnsSource)
	dns.every, dns.timeout = 10*time.Millisecond, 100*time.Millisecond
	lists := watch(t, source)
	await(t, lists, "10.0.0.1:9100")
	server.silence(true)
	for log.count("discovery fails") == 0 {
		<-server.asked
	}
	select {
	case list := <-lists:
		t.Errorf("list %v without an answer", list)
	default:
	}
	server.set(false, "10.0.0.2")
	server.silence(false)
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
	source, err := Parse("dns:///model.test.:9100", Config{Resolver: silent})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- source.Watch(ctx, func(list []Endpoint) { t.Errorf("list %v without an answer", list) })
	}()
	<-asked
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
