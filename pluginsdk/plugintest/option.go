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

// Option adjusts [Conformance], [Check], [Run] and [Diagnose]. If an option is given
// several times, the last one counts. [WithEnv], [WithInput] and [WithState] add to
// earlier options of the same kind instead.
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

// WithEnv adds variables, in the form "KEY=value", that an operator would set for the
// host. As a host does, the suite sends the plugin only variables that it declares in
// Describe. An entry without "=" has an empty value.
func WithEnv(environ ...string) Option {
	environ = slices.Clone(environ)
	return func(s *settings) {
		for _, entry := range environ {
			name, value, _ := strings.Cut(entry, "=")
			s.env[name] = value
		}
	}
}

// WithConfig sets the configuration that an operator would write for the plugin, a YAML
// or JSON document. Nil, the default, means no configuration.
func WithConfig(document []byte) Option {
	document = slices.Clone(document)
	return func(s *settings) { s.config = document }
}

// WithBadConfig sets a configuration that the plugin must refuse, for the rule
// configure.refused. By default, the suite sends bytes that are neither YAML nor JSON. If
// the plugin accepts these, the rule is skipped, because the plugin seems to read no
// configuration.
func WithBadConfig(document []byte) Option {
	document = slices.Clone(document)
	return func(s *settings) { s.badConfig = document }
}

// WithContext sets the description of the host that the plugin gets as Setup.Context. By
// default all its fields are empty.
func WithContext(source pluginsdk.StaticContext) Option {
	return func(s *settings) { s.context = source }
}

// WithPatience sets the time for which the suite waits for an answer or the end of a
// process. The default is 20 s, also for zero and negative values. If the contract grants
// a plugin two seconds, the suite grants a quarter of the patience, by default 5 s, so
// that no plugin fails on a busy machine.
func WithPatience(d time.Duration) Option {
	return func(s *settings) {
		if d > 0 {
			s.patience = d
		}
	}
}

// WithParallel sets the number of rules that run at the same time, each with processes of
// its own. The default is 4. Values below 1 count as 1.
func WithParallel(rules int) Option {
	return func(s *settings) { s.parallel = max(1, rules) }
}

// WithRules restricts the suite to rules with an id that matches one of the patterns, and
// the rules that they build upon. A pattern has the form of path.Match: "export.empty",
// "export.*". If a pattern matches no rule, [Check] returns an error.
func WithRules(patterns ...string) Option {
	patterns = slices.Clone(patterns)
	return func(s *settings) { s.only = patterns }
}

// Input names an outcome of a batch. [WithInput] gives a batch with this outcome, or
// [WithState] a state of the back end in which every batch has it.
type Input string

// The outcomes that rules need. A rule is skipped if neither [WithInput] nor [WithState]
// is given for its outcome.
const (
	// Permanent is a batch that the plugin must refuse for good, so that a host does not
	// send it again.
	Permanent Input = "permanent"
	// Retryable is a batch that the plugin must refuse in a way that makes the host retry.
	Retryable Input = "retryable"
	// Partial is a batch with spans that the back end rejects.
	Partial Input = "partial"
	// Filtered is a batch with at least one span that a processor drops.
	Filtered Input = "filtered"
	// Slow is a batch that takes between half a second and two seconds to deliver. The suite
	// uses it to end the plugin in the middle of a call.
	Slow Input = "slow"
	// Stuck is a batch that hangs in delivery until the call is cancelled or its deadline
	// has passed.
	Stuck Input = "stuck"
)

// WithInput sets a request that has the outcome input when the tested plugin gets it. It
// may be given once for each [Input]. The suite does not change the request.
func WithInput(input Input, request *coltracepb.ExportTraceServiceRequest) Option {
	return func(s *settings) { s.inputs[input] = request }
}

// WithState is for a back end with a state that decides the outcome of a batch, such as a
// locked database, a missing table, or a receiver that is down. enter puts the back end
// into a state in which every batch has the outcome input, and returns a function that
// restores the back end. WithState may be given once for each [Input]. The suite sends
// the request of [WithInput] for the same input, or else a batch of its own.
//
// The suite calls enter while no other rule runs, and always calls restore once. For
// [Slow] it calls restore after a second, while the call is in flight. If enter or
// restore returns an error, the rule fails.
func WithState(input Input, enter func() (restore func() error, err error)) Option {
	return func(s *settings) { s.states[input] = enter }
}

// WithReceived sets a function that returns the ids of all spans that have arrived at the
// back end so far, each as 16 hexadecimal digits. The suite calls it as soon as the
// plugin has answered a batch, to find plugins that answer before the spans have arrived.
// The function must be safe for concurrent use.
func WithReceived(spanIDs func() ([]string, error)) Option {
	return func(s *settings) { s.received = spanIDs }
}

// WithProgress sets a function that [Check] and [Conformance] call when a rule begins.
// done is the number of rules that have ended, and total the number of all rules. The
// function must be safe for concurrent use.
func WithProgress(progress func(rule string, done, total int)) Option {
	return func(s *settings) { s.progress = progress }
}

// prompt returns the time that the suite grants a plugin if the contract grants two
// seconds.
func (s *settings) prompt() time.Duration { return s.patience / 4 }

// granted returns the variables of WithEnv that the plugin declares by patterns. A host
// would send it only these.
func (s *settings) granted(patterns []string) map[string]string {
	granted := maps.Clone(s.env)
	maps.DeleteFunc(granted, func(name, _ string) bool { return !declared(patterns, name) })
	return granted
}

// request returns the request of Configure that a host would send to a plugin that
// declares variables by these patterns.
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
