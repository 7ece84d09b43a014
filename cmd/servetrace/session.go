package main

import (
	"bytes"
	"context"
	"io"

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
	if !start { // the log has only lines of the host, because no plugin was started
		_, err := kept.WriteTo(logged)
		return list, err
	}
	for _, is := range list {
		if is.Err != nil {
			_, err := kept.WriteTo(logged)
			return list, err
		}
	}
	return list, nil
}
