package plugintest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// serviceRules are about what go-plugin's client calls.
func serviceRules() []rule {
	return []rule{
		{
			id: "health.served", title: `grpc.health.v1.Health answers SERVING for "plugin", from the handshake on`,
			after: connected, check: func(ctx context.Context, t *trial) error {
				s, err := t.launch(ctx, how{})
				if err != nil {
					return err
				}
				return s.health(ctx)
			},
		},
		{
			id: "goplugin.controller", title: "plugin.GRPCController's Shutdown ends the process within 2 s",
			after: connected, check: checkController,
		},
		{
			id: "goplugin.stdio", title: "plugin.GRPCStdio's StreamStdio can be opened",
			after: connected, check: checkStdio,
		},
	}
}

func checkController(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.release(ctx); err != nil {
		return fmt.Errorf("GRPCController.Shutdown: %w", err)
	}
	return s.endsPromptly(ctx, "GRPCController.Shutdown")
}

// How long the suite looks at a stream that must stay open: as long as so many
// calls take that were made after it, and a while.
const (
	stdioCalls    = 10
	stdioPatience = 200 * time.Millisecond
)

func checkStdio(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	select {
	case <-s.stdioSent:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for range stdioCalls {
		if err := s.awaitConnection(ctx); err != nil {
			return err
		}
	}
	select {
	case <-s.stdio:
		if s.stdioErr != nil && !errors.Is(s.stdioErr, io.EOF) {
			e := wire.FromStatus(s.stdioErr)
			return fmt.Errorf("GRPCStdio.StreamStdio: %s: %w; hold the stream open, go-plugin's client warns otherwise", e.Code, e)
		}
		return nil
	case <-time.After(stdioPatience):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitConnection returns when the plugin has answered anything at all.
func (s *session) awaitConnection(ctx context.Context) error {
	call, cancel := s.within(ctx)
	defer cancel()
	err := s.conn.Invoke(call, "/plugintest.NoSuchService/NoSuchMethod", &wire.Outgoing{}, &wire.Incoming{})
	if wire.Unimplemented(err) || err == nil {
		return nil
	}
	return fmt.Errorf("a method that nobody has: %w; want UNIMPLEMENTED", s.callError(call, err))
}
