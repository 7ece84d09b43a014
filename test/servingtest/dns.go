package servingtest

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is a DNS server on loopback with one name. Its methods are safe for concurrent use.
type DNS struct {
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
	// Asked receives a value for each question about IPv4 addresses, if it has room.
	Asked chan struct{}
}

// StartDNS starts a server for a name, which ends in a dot, and the addresses of the name. It
// ends with the test.
func StartDNS(tb testing.TB, name string, addrs ...string) *DNS {
	tb.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &DNS{name: name, conn: conn, done: make(chan struct{}), addrs: addrs, Asked: make(chan struct{}, 1)}
	go s.serve(tb)
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
		<-s.done
	})
	return s
}

func (s *DNS) serve(tb testing.TB) {
	defer close(s.done)
	buf := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		answer, err := s.answer(buf[:n])
		if err != nil {
			tb.Errorf("DNS server: %v", err)
			return
		}
		s.send(func() {
			if _, err := s.conn.WriteTo(answer, from); err != nil {
				tb.Logf("DNS server: %v", err)
			}
		})
	}
}

// send sends an answer, or keeps it.
func (s *DNS) send(answer func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		s.kept = append(s.kept, answer)
		return
	}
	answer()
}

func (s *DNS) answer(question []byte) ([]byte, error) {
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
		case s.Asked <- struct{}{}:
		default:
		}
	}
	return m.Pack()
}

// Addr returns the address of the server.
func (s *DNS) Addr() string { return s.conn.LocalAddr().String() }

// Set replaces the records, and whether the server fails.
func (s *DNS) Set(fail bool, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.addrs = fail, addrs
}

// Silence sets whether the server keeps its answers. It sends what it has kept when it no
// longer does.
func (s *DNS) Silence(yes bool) {
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
