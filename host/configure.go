package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/stdio"
	"github.com/servetrace/servetrace/internal/wire"
)

// configurationError is an error of the operator's configuration, or of a plugin that
// refuses it: a further start fails too until a person has mended it.
type configurationError struct{ error }

func (e configurationError) Unwrap() error { return e.error }

// configure sends the variables that the plugin declares and the operator's
// configuration.
func configure(ctx context.Context, list *pluginlist.Settings, log *slog.Logger, conn grpc.ClientConnInterface, plan plan, d description) error {
	reply, err := pluginv1.NewLifecycleClient(conn).Configure(ctx, &pluginv1.ConfigureRequest{
		Env:     d.granted,
		Config:  plan.document,
		Context: plan.context.message(plan.name),
	})
	if err != nil {
		said := wire.FromStatus(err)
		if err = fmt.Errorf("configure: %w", said); said.Final {
			err = configurationError{err}
		}
		return err
	}
	err = diagnose(log, plan, d, reply.GetDiagnostics())
	return list.ExplainUngranted(plan.name, plan.environ, d.granted, d.withheld, err)
}

// mostDiagnostics bounds the remarks of each severity that are logged.
const mostDiagnostics = 20

// diagnose logs the plugin's remarks on its configuration. Remarks of severity error
// are the error. The file of the configuration is named with each remark that may be
// about it, which excludes variables that the plugin declares.
func diagnose(log *slog.Logger, plan plan, about description, list []*pluginv1.Diagnostic) error {
	var errs []error
	warned, ofFile := 0, ""
	for _, d := range list {
		text := wire.Clip(plan.redactor.Text(d.GetText()))
		if d.GetPath() != "" {
			text = wire.Clip(plan.redactor.Text(d.GetPath())) + ": " + text
		}
		file := plan.configFile
		if about.reads(d.GetPath()) {
			file = ""
		}
		if d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			if len(errs) < mostDiagnostics {
				errs = append(errs, errors.New(text))
				ofFile = cmp.Or(ofFile, file)
			}
			continue
		}
		if warned++; warned <= mostDiagnostics {
			args := []any{"text", text}
			if file != "" {
				args = append(args, "file", file)
			}
			log.Warn("plugin's remark on its configuration", args...)
		}
	}
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case ofFile != "":
		return configurationError{fmt.Errorf("configuration refused (file %q): %w", ofFile, err)}
	}
	return configurationError{fmt.Errorf("configuration refused: %w", err)}
}

// message returns the context in the form of the contract.
func (c Context) message(plugin string) *pluginv1.StaticContext {
	columns, terminal := 0, false
	if stdout := stdio.Stdout(); stdout != nil {
		columns, terminal = stdout.Terminal()
	}
	return &pluginv1.StaticContext{
		Application: c.Application,
		Deployment:  c.Deployment,
		Replica:     c.Replica,
		Node:        c.Node,
		Job:         c.Job,
		ServiceName: c.ServiceName,
		PluginName:  plugin,

		SamplingRatio: c.SamplingRatio,

		Terminal:        terminal,
		TerminalColumns: uint32(columns),
	}
}
