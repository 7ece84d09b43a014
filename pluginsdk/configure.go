package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

type builder struct {
	spec Spec
	env  Env
	log  *slog.Logger
}

// build runs all constructors, so that an operator sees all errors at once. If a
// constructor fails, build returns nil and the diagnostics of severity ERROR.
func (b builder) build(ctx context.Context, req *pluginv1.ConfigureRequest) (*pipeline, []*pluginv1.Diagnostic) {
	var remarks remarks
	defer remarks.close()
	setup := b.setup(req, &remarks)
	for name, value := range req.GetEnv() {
		if b.env.setenv == nil {
			break
		}
		if err := b.env.setenv(name, value); err != nil {
			remarks.fail("", &ConfigError{Path: name, Err: err})
		}
	}
	built := &pipeline{log: b.log}
	for i, construct := range b.spec.Processors {
		processor, err := callConstructor(b.log, fmt.Sprintf("processor %d", i+1), func() (Processor, error) { return construct(ctx, setup) })
		if err != nil {
			remarks.fail(fmt.Sprintf("processor %d: ", i+1), err)
			continue
		}
		stages, err := b.unfold(processor, i+1)
		if err != nil {
			remarks.fail(fmt.Sprintf("processor %d: ", i+1), err)
		}
		built.stages = append(built.stages, stages...)
	}
	if err := nameApart(built.stages); err != nil {
		remarks.fail("", err)
	}
	if !b.spec.isProcessor() {
		exporter, err := callConstructor(b.log, "exporter", func() (Exporter, error) { return b.spec.Exporter(ctx, setup) })
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
		b.log.Warn("release what was built", "error", err)
	}
	return nil, remarks.list()
}

func (b builder) setup(req *pluginv1.ConfigureRequest, remarks *remarks) Setup {
	granted, where := req.GetEnv(), req.GetContext()
	return Setup{
		Getenv: func(name string) string {
			if value, ok := granted[name]; ok {
				return value
			}
			return b.env.lookup(name)
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
		Stdout: b.env.Stdout,
		Log:    b.log,
		Warn: func(path, text string) {
			remarks.add(pluginv1.Severity_SEVERITY_WARNING, path, text)
		},
		readers: &documentReaders{},
	}
}

// callConstructor calls one constructor. If the constructor panics, or returns nil without
// an error, callConstructor returns an error.
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

// unfold calls the processor's method unfold under guard, because that method calls the
// author's Name.
func (b builder) unfold(processor Processor, place int) (stages []stage, err error) {
	panicked := guard(b.log, "name processor "+strconv.Itoa(place), func() error {
		stages, err = unfold(processor, strconv.Itoa(place))
		return nil
	})
	return stages, errors.Join(panicked, err)
}

// remarks collects diagnostics. Constructors may call Warn from other goroutines, and even
// after they have returned.
type remarks struct {
	mu     sync.Mutex
	closed bool
	all    []*pluginv1.Diagnostic
}

// add adds a remark, unless it was added before. Two constructors may find the same fault.
func (r *remarks) add(severity pluginv1.Severity, path, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	remark := &pluginv1.Diagnostic{Severity: severity, Path: wire.Text(path), Text: wire.Text(text)}
	if r.closed || slices.ContainsFunc(r.all, func(d *pluginv1.Diagnostic) bool { return proto.Equal(d, remark) }) {
		return
	}
	r.all = append(r.all, remark)
}

// fail adds a diagnostic of severity ERROR for err, or for each error that err joins.
// prefix is the position in the Spec. It is omitted for a ConfigError, which has the
// position in the operator's settings.
func (r *remarks) fail(prefix string, err error) {
	if list := members(err); list != nil {
		for _, one := range list {
			r.fail(prefix, one)
		}
		return
	}
	path, text := "", err.Error()
	if named, ok := errors.AsType[*ConfigError](err); ok {
		path = named.Path
		if text == named.Error() { // otherwise the text around it is needed
			text, prefix = named.Err.Error(), ""
		}
	}
	r.add(pluginv1.Severity_SEVERITY_ERROR, path, prefix+text)
}

// members returns the errors that errors.Join joined. It returns nil for any other error,
// also for an error with several causes and a text of its own.
func members(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	list := several.Unwrap()
	if joined := errors.Join(list...); joined == nil || joined.Error() != err.Error() {
		return nil
	}
	return list
}

func (r *remarks) failed() bool {
	for _, d := range r.list() {
		if d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			return true
		}
	}
	return false
}

func (r *remarks) list() []*pluginv1.Diagnostic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

func (r *remarks) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
