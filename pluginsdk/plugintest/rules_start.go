package plugintest

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// The checks of the handshake and of the services of go-plugin.

func checkLine(t *trial) { t.suite.shake = t.start(asHost).handshake() }

func checkVersion(t *trial) { t.must(t.suite.shake.checkVersions()) }

func checkPlain(t *trial) {
	if n := len(t.suite.shake.certificate); n > 0 {
		t.fatalf("the sixth field has %d bytes, want none: serve without TLS, the socket's folder is private", n)
	}
}

func checkSocket(t *trial) {
	p := t.start(asHost)
	address := p.handshake().address
	if got, want := filepath.Dir(address), p.plugin.sockets; got != want {
		t.fatalf("the socket is %s; want it in %s, which the host has made for it (%s)", address, want, wire.EnvSocketDir)
	}
	conn, err := new(net.Dialer).DialContext(t.ctx, "unix", address)
	if err != nil {
		t.fatalf("connect as soon as the handshake is read: %v; listen first, then print", err)
	}
	_ = conn.Close() // nothing was sent, so nothing can be lost
}

// withHandshake returns options that start a plugin with another value of one variable of
// the handshake.
func withHandshake(name, value string) startOptions {
	return startOptions{handshake: map[string]string{name: value}}
}

func checkNewerVersions(t *trial) {
	const versions = "4096,1,2"
	t.step = wire.EnvProtocolVersions + "=" + versions
	t.must(t.start(withHandshake(wire.EnvProtocolVersions, versions)).handshake().checkVersions())
}

func checkOtherVersion(t *trial) {
	const versions = "4095" // no plugin supports this version
	t.step = wire.EnvProtocolVersions + "=" + versions
	p := t.start(withHandshake(wire.EnvProtocolVersions, versions))
	shake, refused := p.plugin.handshake(t.ctx, t.suite.settings.patience)
	if refused == nil {
		if err := shake.checkVersions(); err != nil {
			t.fatalf("it speaks version %d, but %v", wire.ProtocolVersion, err)
		}
		return
	}
	if p.plugin.awaitEnd(t.ctx, t.prompt()) != nil { // the plugin may end a moment after its output
		t.must(refused)
	}
	if p.plugin.exit() == nil {
		t.fatalf("it ended with status 0; want another status, and a message on standard error")
	}
}

func checkCookie(t *trial) {
	t.step = "without the cookie (" + wire.CookieKey + ")"
	expectRefusal(t.start(withHandshake(wire.CookieKey, "")))
	t.step = "with another cookie (" + wire.CookieKey + ")"
	expectRefusal(t.start(withHandshake(wire.CookieKey, "0000")))
}

// expectRefusal expects that the plugin prints a message and ends, because it was not
// started by a host.
func expectRefusal(p *subject) {
	t := p.t
	if _, err := p.plugin.handshake(t.ctx, t.suite.settings.patience); err == nil {
		t.fatalf("it starts as if a host had started it; want a message that it is a plugin, and its end")
	}
	if err := p.plugin.awaitEnd(t.ctx, t.prompt()); err != nil {
		t.fatalf("%v; want a message that it is a plugin, and its end", err)
	}
	if p.plugin.exit() == nil {
		t.fatalf("it ended with status 0; want another status, because it did nothing")
	}
	if lines, _ := p.plugin.out.counts(); lines == 0 {
		t.fatalf("it ended without a message; want it to print that it is a plugin, and how to use it")
	}
}

func checkHealth(t *trial) { t.must(t.connect(asHost).session.health(t.ctx)) }

func checkController(t *trial) {
	p := t.connect(asHost)
	if err := p.session.release(t.ctx); err != nil {
		t.fatalf("GRPCController.Shutdown: %v", err)
	}
	p.ends("GRPCController.Shutdown")
}

// checkStdio expects that the stream of GRPCStdio, which connect has opened, stays open
// during ten later calls and a moment after them.
func checkStdio(t *trial) {
	const calls, moment = 10, 200 * time.Millisecond
	s := t.connect(asHost).session
	for range calls {
		err := s.invoke(t.ctx, "/plugintest.NoSuchService/NoSuchMethod")
		if err != nil && codeOf(err) != "UNIMPLEMENTED" {
			t.fatalf("an unknown method: %v; want UNIMPLEMENTED", err)
		}
	}
	select {
	case <-s.stdio:
		if e := wire.FromStatus(s.stdioErr); !errors.Is(s.stdioErr, io.EOF) {
			t.fatalf("GRPCStdio.StreamStdio: %s: %v; hold the stream open, go-plugin's client warns otherwise", e.Code, e)
		}
	case <-time.After(moment):
	case <-t.ctx.Done():
	}
}
