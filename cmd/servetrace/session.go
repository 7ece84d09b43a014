package main

import (
	"bytes"
	"context"
	"io"

	"github.com/servetrace/servetrace/host"
)

// openSession starts the only plugin of cfg and configures it. The plugin's log goes to
// logged. If the plugin does not become ready within SERVE_TRACING_START_TIMEOUT,
// openSession returns an error.
func openSession(ctx context.Context, cfg host.Config, logged io.Writer, opts ...host.Option) (*host.Session, error) {
	list, err := inspectAll(ctx, cfg, false, io.Discard) // finds errors of the list and of its files
	if err != nil {
		return nil, err
	}
	if err := hint(list[0]); err != nil {
		return nil, err
	}
	return host.OpenSession(ctx, cfg, "", append(opts, host.WithLogger(newLog(logged)))...)
}

func inspectOne(ctx context.Context, cfg host.Config, logged io.Writer) (host.Inspection, error) {
	list, err := inspectAll(ctx, cfg, true, logged, host.WithEitherKind())
	if err != nil {
		return host.Inspection{}, err
	}
	return list[0], hint(list[0])
}

// inspectAll asks the host about all plugins of cfg. It writes the log to logged if start
// is false, or if a plugin cannot be used. Otherwise it drops the log.
func inspectAll(ctx context.Context, cfg host.Config, start bool, logged io.Writer, opts ...host.Option) ([]host.Inspection, error) {
	var kept bytes.Buffer
	list := host.Inspect(ctx, cfg, start, append(opts, host.WithLogger(newLog(&kept)))...)
	if len(list) == 1 && list[0].Name == "" { // the list is invalid
		return nil, usageError{list[0].Err}
	}
	if !start { // no plugin was started, so the log has only lines of the host
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
