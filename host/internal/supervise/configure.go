package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// configurationError is a fault in the operator's configuration, or the plugin's refusal
// of the configuration. Further starts fail until an operator has corrected the
// configuration.
type configurationError struct{ error }

func (e configurationError) Unwrap() error { return e.error }

// configure sends the plugin its variables and the operator's configuration. It returns
// the remarks of severity error in the answer as an error.
func configure(ctx context.Context, cfg *Settings, log *slog.Logger, conn grpc.ClientConnInterface, plan Plan, d Description) error {
	reply, err := pluginv1.NewLifecycleClient(conn).Configure(ctx, &pluginv1.ConfigureRequest{
		Env:     d.Granted,
		Config:  plan.Document,
		Context: cfg.context(plan.Name),
	})
	if err != nil {
		said := wire.FromStatus(err)
		if err = fmt.Errorf("configure: %w", said); said.Final {
			err = configurationError{err}
		}
		return err
	}
	err = diagnose(log, plan, d, reply.GetDiagnostics())
	return cfg.Plugins.ExplainUngranted(plan.Name, plan.Environ, d.Granted, d.Withheld, err)
}

// mostDiagnostics bounds the number of warnings of a plugin that are logged, and the
// number of errors.
const mostDiagnostics = 20

// diagnose logs the plugin's remarks on its configuration. It returns the remarks of
// severity error as an error. It adds the path of the configuration file to each remark,
// except if the remark is about a declared variable.
func diagnose(log *slog.Logger, plan Plan, about Description, list []*pluginv1.Diagnostic) error {
	var errs []error
	warned, ofFile := 0, ""
	for _, d := range list {
		text := wire.Clip(plan.Redactor.Text(d.GetText()))
		if d.GetPath() != "" {
			text = wire.Clip(plan.Redactor.Text(d.GetPath())) + ": " + text
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

// context returns the description of this process for a plugin.
func (c *Settings) context(plugin string) *pluginv1.StaticContext {
	about := proto.CloneOf(c.Context)
	about.PluginName = plugin
	if stdout := c.output(); stdout != nil {
		columns, terminal := stdout.Terminal()
		about.Terminal, about.TerminalColumns = terminal, uint32(columns)
	}
	return about
}
