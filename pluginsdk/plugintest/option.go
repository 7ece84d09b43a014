package plugintest

import (
	"maps"
	"slices"
	"strings"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// Option adjusts [Conformance], [Check], [Run] and [Diagnose]. If the same option is
// given several times, the last counts. But [WithEnv], [WithInput] and [WithState] add to
// earlier options.
type Option func(*settings)

type settings struct {
	env       map[string]string
	config    []byte
	badConfig []byte
	context   pluginsdk.StaticContext
	patience  time.Duration
	parallel  int
	only      []string
	inputs    map[Input]*coltracepb.ExportTraceServiceRequest
	states    map[Input]func() (restore func() error, err error)
	received  func() ([]string, error)
	progress  func(rule string, done, total int)
}

func newSettings(opts []Option) *settings {
	s := &settings{
		env:      map[string]string{},
		patience: 20 * time.Second,
		parallel: 4,
		inputs:   map[Input]*coltracepb.ExportTraceServiceRequest{},
		states:   map[Input]func() (func() error, error){},
		progress: func(string, int, int) {},
	}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// WithEnv adds variables to the operator's environment, "KEY=value". As a host does, the
// suite passes in Configure only the variables that the plugin declares in Describe. An
// entry without "=" has an empty value.
func WithEnv(environ ...string) Option {
	environ = slices.Clone(environ)
	return func(s *settings) {
		for _, entry := range environ {
			name, value, _ := strings.Cut(entry, "=")
			s.env[name] = value
		}
	}
}

// WithConfig sets the operator's configuration for the plugin, a YAML or JSON
// document. The default, and nil, is no configuration.
func WithConfig(document []byte) Option {
	document = slices.Clone(document)
	return func(s *settings) { s.config = document }
}

// WithBadConfig sets a configuration that the plugin must refuse. Without it the suite
// sends bytes that are neither YAML nor JSON. If the plugin accepts them, the rule is
// skipped, because the plugin seems to read no configuration.
func WithBadConfig(document []byte) Option {
	document = slices.Clone(document)
	return func(s *settings) { s.badConfig = document }
}

// WithContext sets the source of the spans, as passed with Configure. By default all
// its fields are empty.
func WithContext(source pluginsdk.StaticContext) Option {
	return func(s *settings) { s.context = source }
}

// WithPatience sets the time for which the suite waits for an answer or the end of a
// process. The default, used for zero or less, is 20 s. If the contract grants a
// plugin two seconds, the suite grants a quarter of the patience, by default 5 s. So no
// plugin fails on a busy machine.
func WithPatience(d time.Duration) Option {
	return func(s *settings) {
		if d > 0 {
			s.patience = d
		}
	}
}

// WithParallel sets the number of rules that run at a time, each with processes of its
// own. The default is 4; values below 1 count as 1.
func WithParallel(rules int) Option {
	return func(s *settings) { s.parallel = max(1, rules) }
}

// WithRules selects the rules that match one of the patterns, and the rules that they
// build upon. A pattern has the form of path.Match: "export.empty", "export.*". If a
// pattern matches no rule, [Check] returns an error.
func WithRules(patterns ...string) Option {
	patterns = slices.Clone(patterns)
	return func(s *settings) { s.only = patterns }
}

// Input names an outcome that a request of [WithInput], or a state of [WithState],
// produces.
type Input string

// The inputs. A rule that needs an input is skipped if neither [WithInput] nor [WithState]
// gives this input.
const (
	// Permanent is a batch that the plugin must refuse finally.
	Permanent Input = "permanent"
	// Retryable is a batch that the plugin must refuse in a way that makes the host retry.
	Retryable Input = "retryable"
	// Partial is a batch with spans that the back end rejects.
	Partial Input = "partial"
	// Filtered is a batch with at least one span that a processor drops.
	Filtered Input = "filtered"
	// Slow is a batch that takes more than half a second to deliver, and less than two.
	// It is used to end the plugin in the middle of a call.
	Slow Input = "slow"
	// Stuck is a batch with a delivery that hangs until the call is cancelled, or its
	// deadline is exceeded.
	Stuck Input = "stuck"
)

// WithInput sets a request that has the outcome of input in the tested plugin. It may be
// given once for each [Input].
func WithInput(input Input, request *coltracepb.ExportTraceServiceRequest) Option {
	return func(s *settings) { s.inputs[input] = request }
}

// WithState is [WithInput] for a back end whose state decides the outcome, such as a
// locked database, a missing table, or a receiver that is down. enter puts the back
// end into a state in which every batch has the outcome of input, and returns the
// function that restores the back end. WithState may be given once for each [Input].
// The batch is the request of WithInput, or else a batch of the suite.
//
// The suite calls enter while no other rule runs. It always calls restore, once. For
// [Slow] it calls restore after a second, while the call is in flight. An error of
// either function fails the rule.
func WithState(input Input, enter func() (restore func() error, err error)) Option {
	return func(s *settings) { s.states[input] = enter }
}

// WithReceived sets a function that returns the ids of all spans that have arrived at
// the back end so far, as 16 hexadecimal digits. The suite calls it as soon as an
// Export is answered, to find plugins that answer before delivery. The function must be
// safe for concurrent use.
func WithReceived(spanIDs func() ([]string, error)) Option {
	return func(s *settings) { s.received = spanIDs }
}

// WithProgress sets a function that [Check] and [Conformance] call when a rule begins, with
// the numbers of rules that have ended and of all rules. It must be safe for concurrent
// use.
func WithProgress(progress func(rule string, done, total int)) Option {
	return func(s *settings) { s.progress = progress }
}

// prompt returns the time that the suite allows if the contract allows two seconds.
func (s *settings) prompt() time.Duration { return s.patience / 4 }

// granted returns the variables of env that match the patterns, as a host grants them.
func (s *settings) granted(patterns []string) map[string]string {
	granted := maps.Clone(s.env)
	maps.DeleteFunc(granted, func(name, _ string) bool { return !declared(patterns, name) })
	return granted
}

// request returns the Configure request of a host, for a plugin that declares the patterns.
func (s *settings) request(patterns []string) *pluginv1.ConfigureRequest {
	source := s.context
	return &pluginv1.ConfigureRequest{Env: s.granted(patterns), Config: s.config, Context: &pluginv1.StaticContext{
		Application:     source.Application,
		Deployment:      source.Deployment,
		Replica:         source.Replica,
		Node:            source.Node,
		Job:             source.Job,
		ServiceName:     source.ServiceName,
		PluginName:      source.PluginName,
		SamplingRatio:   source.SamplingRatio,
		Terminal:        source.Terminal,
		TerminalColumns: uint32(source.TerminalColumns),
	}}
}

func declared(patterns []string, name string) bool {
	return wire.DeclaredBy(patterns, name) != ""
}
