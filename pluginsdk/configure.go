package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// configure runs the constructors and makes the plugin ready for batches, or refused if a
// constructor fails. It returns an error if it was called before, or if the plugin is
// stopping.
func (p *plugin) configure(ctx context.Context, req *pluginv1.ConfigureRequest) ([]*pluginv1.Diagnostic, error) {
	if _, err := p.calls.enter(described, configuring); err != nil {
		return nil, err
	}
	defer p.calls.leave()
	built, diagnostics := p.build(ctx, req)
	p.calls.configured(built)
	return diagnostics, nil
}

// build runs all constructors, even if one fails, so that an operator sees all errors at
// once. It returns a nil pipeline if one has failed.
func (p *plugin) build(ctx context.Context, req *pluginv1.ConfigureRequest) (*pipeline, []*pluginv1.Diagnostic) {
	var remarks remarks
	defer remarks.close()
	setup := p.setup(req, &remarks)
	if p.env.setenv != nil {
		for name, value := range req.GetEnv() {
			if err := p.env.setenv(name, value); err != nil {
				remarks.fail("", &ConfigError{Path: name, Err: err})
			}
		}
	}
	built := &pipeline{log: p.log}
	for i, construct := range p.spec.Processors {
		what := fmt.Sprintf("processor %d", i+1)
		processor, err := callConstructor(p.log, what, func() (Processor, error) { return construct(ctx, setup) })
		if err == nil {
			var stages []stage
			stages, err = p.unfold(processor, i+1)
			built.stages = append(built.stages, stages...)
		}
		if err != nil {
			remarks.fail(what+": ", err)
		}
	}
	if err := nameApart(built.stages); err != nil {
		remarks.fail("", err)
	}
	if !p.spec.isProcessor() {
		exporter, err := callConstructor(p.log, "exporter", func() (Exporter, error) { return p.spec.Exporter(ctx, setup) })
		if err != nil {
			remarks.fail("", err)
		} else {
			built.exporter = exporter
		}
	}
	if err := setup.readers.unread(setup.Config); err != nil {
		remarks.fail("", err)
	}
	if !remarks.failed() {
		return built, remarks.list()
	}
	if err := built.close(ctx); err != nil {
		p.log.Warn("release what was built", "error", err)
	}
	return nil, remarks.list()
}

// setup returns the argument for all constructors. Its function Warn adds to remarks.
func (p *plugin) setup(req *pluginv1.ConfigureRequest, remarks *remarks) Setup {
	granted, where := req.GetEnv(), req.GetContext()
	return Setup{
		Getenv: func(name string) string {
			if value, ok := granted[name]; ok {
				return value
			}
			return p.env.lookup(name)
		},
		Config: req.GetConfig(),
		Context: StaticContext{
			Application: where.GetApplication(),
			Deployment:  where.GetDeployment(),
			Replica:     where.GetReplica(),
			Node:        where.GetNode(),
			Job:         where.GetJob(),
			ServiceName: where.GetServiceName(),
			PluginName:  where.GetPluginName(),

			SamplingRatio: where.GetSamplingRatio(),

			Terminal:        where.GetTerminal(),
			TerminalColumns: int(where.GetTerminalColumns()),
		},
		Stdout: p.env.Stdout,
		Log:    p.log,
		Warn: func(path, text string) {
			remarks.add(pluginv1.Severity_SEVERITY_WARNING, path, text)
		},
		readers: &documentReaders{},
	}
}

// callConstructor calls a constructor of the plugin's author. If the constructor panics, or
// returns neither a value nor an error, callConstructor returns an error. what is for that.
func callConstructor[T any](log *slog.Logger, what string, construct func() (T, error)) (made T, err error) {
	var fault error
	panicked := guard(log, "construct "+what, func() error {
		made, fault = construct()
		return nil
	})
	if panicked != nil {
		return made, panicked
	}
	if fault == nil && any(made) == nil {
		fault = errors.New("constructor gave neither a value nor an error")
	}
	return made, fault
}

// unfold calls the function unfold under guard, because that function calls the method Name
// of the plugin's author, which may panic. place is the number of the processor in the Spec.
func (p *plugin) unfold(processor Processor, place int) (stages []stage, err error) {
	panicked := guard(p.log, "name processor "+strconv.Itoa(place), func() error {
		stages, err = unfold(processor, strconv.Itoa(place))
		return nil
	})
	return stages, errors.Join(panicked, err)
}
