package plugintest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// handshakeRules are about the process before its first call.
func handshakeRules() []rule {
	return []rule{
		{
			id: "handshake.line", title: "The first line on standard output is the handshake, 1|1|unix|PATH|grpc",
			check: func(ctx context.Context, t *trial) error {
				s, err := t.handshaken(ctx, how{})
				if err != nil {
					return err
				}
				t.shake = s.shake
				return nil
			},
		},
		{
			id: "handshake.version", title: "The handshake names go-plugin's core protocol 1 and protocol version 1",
			after: shaken, check: func(_ context.Context, t *trial) error { return t.shake.checkVersions() },
		},
		{
			id: "handshake.plain", title: "The handshake carries no certificate: there is no AutoMTLS",
			after: shaken, check: func(_ context.Context, t *trial) error { return t.shake.checkPlain() },
		},
		{
			id: "handshake.socket", title: "The socket lies in PLUGIN_UNIX_SOCKET_DIR and takes connections once the line is printed",
			after: shaken, check: checkSocket,
		},
		{
			id: "handshake.newer-host", title: "A host that speaks other versions beside 1 gets 1",
			after: connected, check: func(ctx context.Context, t *trial) error { return checkOffered(ctx, t, "4096,1,2") },
		},
		{
			id: "handshake.other-host", title: "A host that does not speak 1 is refused, or told the version that the plugin speaks",
			needs: process, after: connected, check: checkMismatch,
		},
		{
			id: "handshake.cookie", title: "Without the host's cookie it says what it is, and ends with a status other than 0",
			needs: process, after: shaken, check: checkCookie,
		},
	}
}

// handshaken starts a plugin and reads its handshake.
func (t *trial) handshaken(ctx context.Context, h how) (*session, error) {
	s, err := t.spawn(h)
	if err != nil {
		return nil, err
	}
	return s, s.awaitHandshake(ctx)
}

func (h handshake) checkVersions() error {
	if h.core != wire.CoreProtocolVersion || h.app != wire.ProtocolVersion {
		return fmt.Errorf("it names core protocol %d and version %d; want %d and %d", h.core, h.app, wire.CoreProtocolVersion, wire.ProtocolVersion)
	}
	return nil
}

func (h handshake) checkPlain() error {
	if h.certificate != "" {
		return fmt.Errorf("the sixth field has %d bytes, want none: serve without TLS, the socket's folder is private", len(h.certificate))
	}
	return nil
}

func checkSocket(ctx context.Context, t *trial) error {
	s, err := t.handshaken(ctx, how{})
	if err != nil {
		return err
	}
	if got, want := filepath.Dir(s.shake.address), s.plugin.socketDir(); got != want {
		return fmt.Errorf("the socket is %s; want it in %s, which the host has made for it (%s)", s.shake.address, want, wire.EnvSocketDir)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.shake.address)
	if err != nil {
		return fmt.Errorf("connect as soon as the handshake is read: %w; listen first, then print", err)
	}
	return conn.Close()
}

func checkOffered(ctx context.Context, t *trial, versions string) error {
	s, err := t.handshaken(ctx, how{versions: versions})
	if err != nil {
		return fmt.Errorf("%s=%s: %w", wire.EnvProtocolVersions, versions, err)
	}
	if err := s.shake.checkVersions(); err != nil {
		return fmt.Errorf("%s=%s: %w", wire.EnvProtocolVersions, versions, err)
	}
	return nil
}

// otherVersion is one that no plugin speaks.
const otherVersion = "4095"

func checkMismatch(ctx context.Context, t *trial) error {
	s, err := t.spawn(how{versions: otherVersion})
	if err != nil {
		return err
	}
	if err := s.awaitHandshake(ctx); err != nil {
		// A word to whoever reads it, and the end, which may take a moment.
		if s.awaitEnd(ctx, t.prompt()) != nil {
			return fmt.Errorf("%s=%s: %w", wire.EnvProtocolVersions, otherVersion, err)
		}
		if s.plugin.exit() == nil {
			return fmt.Errorf("%s=%s: it ended with status 0; want another, and a word on standard error", wire.EnvProtocolVersions, otherVersion)
		}
		return nil
	}
	if err := s.shake.checkVersions(); err != nil {
		return fmt.Errorf("%s=%s: it speaks version %d, and says: %w", wire.EnvProtocolVersions, otherVersion, wire.ProtocolVersion, err)
	}
	return nil
}

func checkCookie(ctx context.Context, t *trial) error {
	var faults []error
	for _, test := range []struct{ name, cookie string }{{"without the cookie", "-"}, {"with another cookie", "0000"}} {
		if err := checkRefuses(ctx, t, how{cookie: test.cookie}); err != nil {
			faults = append(faults, fmt.Errorf("%s (%s): %w", test.name, wire.CookieKey, err))
		}
	}
	return errors.Join(faults...)
}

// checkRefuses starts a plugin that must end by itself, with a word.
func checkRefuses(ctx context.Context, t *trial, h how) error {
	s, err := t.spawn(h)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	if line, err := s.plugin.firstLine(wait); err == nil {
		if _, faults := parseHandshake(line); len(faults) == 0 {
			return errors.New("it starts as if a host had started it; want it to say what it is and to end")
		}
	}
	if err := s.awaitEnd(ctx, t.prompt()); err != nil {
		return fmt.Errorf("%w; want it to say what it is and to end", err)
	}
	if s.plugin.exit() == nil {
		return errors.New("it ended with status 0; want another, so that whoever started it sees that it did nothing")
	}
	if lines, _ := s.plugin.printed().counts(); lines == 0 {
		return errors.New("it ended without a word; want it to say that it is a plugin and how to use it")
	}
	return nil
}

// awaitEnd waits for the end of the plugin.
func (s *session) awaitEnd(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-s.plugin.done():
		return nil
	case <-timer.C:
		return fmt.Errorf("it still runs after %v", most)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
