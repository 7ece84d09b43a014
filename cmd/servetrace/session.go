package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"

	"github.com/servetrace/servetrace/host"
)

// openSession starts the only plugin of cfg and configures it. It writes the plugin's log
// to logged. It returns an error if the plugin is not ready within
// SERVE_TRACING_START_TIMEOUT.
func openSession(ctx context.Context, cfg host.Config, logged io.Writer, opts ...host.Option) (*host.Session, error) {
	list, err := inspectAll(ctx, cfg, false, io.Discard) // finds errors in the list and in the plugin's file
	if err != nil {
		return nil, err
	}
	if err := hint(list[0]); err != nil {
		return nil, err
	}
	return host.OpenSession(ctx, cfg, "", append(opts, host.WithLogger(newLog(logged)))...)
}

// inspectOne starts the only plugin of cfg, reads its description and ends it.
func inspectOne(ctx context.Context, cfg host.Config, logged io.Writer) (host.Inspection, error) {
	list, err := inspectAll(ctx, cfg, true, logged, host.WithEitherKind())
	if err != nil {
		return host.Inspection{}, err
	}
	return list[0], hint(list[0])
}

// inspectAll returns the host's inspection of each plugin of cfg. If start is true, it
// starts the plugins. It writes the host's log to logged, but drops the log if it has
// started the plugins and all of them can be used.
func inspectAll(ctx context.Context, cfg host.Config, start bool, logged io.Writer, opts ...host.Option) ([]host.Inspection, error) {
	var kept bytes.Buffer
	list := host.Inspect(ctx, cfg, start, append(opts, host.WithLogger(newLog(&kept)))...)
	if len(list) == 1 && list[0].Name == "" { // the list of plugins is invalid
		return nil, usageError{list[0].Err}
	}
	if start && !slices.ContainsFunc(list, func(is host.Inspection) bool { return is.Err != nil }) {
		return list, nil
	}
	_, err := kept.WriteTo(logged)
	return list, err
}

// newLog returns a logger for the host and a plugin. It writes text without the time.
func newLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
