package plugintest

import (
	"maps"
	"slices"
	"strings"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// Option adjusts [Conformance], [Check], [Run] and [Diagnose]. Of several of
// one kind the last counts, but where an option says otherwise.
type Option interface{ apply(*settings) }

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

// settings are what the options say.
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
}

func newSettings(opts []Option) *settings {
	s := &settings{
		env:      map[string]string{},
		patience: 20 * time.Second,
		parallel: 4,
		inputs:   map[Input]*coltracepb.ExportTraceServiceRequest{},
		states:   map[Input]func() (func() error, error){},
	}
	for _, opt := range opts {
		opt.apply(s)
	}
	return s
}

// WithEnv gives the operator's environment, "KEY=value", to be added to that of
// other WithEnv. As under a host, the plugin gets of it what its Describe
// declares, and gets it with Configure. An entry without "=" is an empty value.
func WithEnv(environ ...string) Option {
	environ = slices.Clone(environ)
	return optionFunc(func(s *settings) {
		for _, entry := range environ {
			name, value, _ := strings.Cut(entry, "=")
			s.env[name] = value
		}
	})
}

// WithConfig gives the operator's configuration for the plugin, a YAML or JSON
// document. Without it, or with nil, there is none.
func WithConfig(document []byte) Option {
	document = slices.Clone(document)
	return optionFunc(func(s *settings) { s.config = document })
}

// WithBadConfig gives a document that the plugin must refuse. Without it the
// suite sends one that is neither YAML nor JSON, and a plugin that takes it is
// held for one that reads no document.
func WithBadConfig(document []byte) Option {
	document = slices.Clone(document)
	return optionFunc(func(s *settings) { s.badConfig = document })
}

// WithContext says where the spans come from. Without it the plugin is told
// made-up names.
func WithContext(where pluginsdk.StaticContext) Option {
	return optionFunc(func(s *settings) { s.context = where })
}

// WithPatience is how long the suite waits for anything: an answer, the end of
// a process. The default is 20 s. Where the contract gives a plugin two
// seconds, the suite gives it a quarter of the patience, five by default, so
// that a busy machine fails nobody. Zero or less is the default.
func WithPatience(d time.Duration) Option {
	return optionFunc(func(s *settings) {
		if d > 0 {
			s.patience = d
		}
	})
}

// WithParallel is how many rules run at a time, each with processes of its own.
// The default is 4. Below 1 counts as 1.
func WithParallel(rules int) Option {
	return optionFunc(func(s *settings) { s.parallel = max(1, rules) })
}

// WithRules leaves out all rules but those that one of the patterns names, and
// those that they build upon: "export.empty", or "export.*" in the form of
// path.Match. It is for the work on one rule. A pattern that names none is an
// error of [Check].
func WithRules(patterns ...string) Option {
	patterns = slices.Clone(patterns)
	return optionFunc(func(s *settings) { s.only = patterns })
}

// Input names what a request of [WithInput], or a state of [WithState], makes the
// plugin do.
type Input string

// The inputs. Rules that need one are skipped if neither [WithInput] nor [WithState]
// gives it.
const (
	// Permanent is a batch that the plugin must refuse for good.
	Permanent Input = "permanent"
	// Retryable is a batch that the plugin must refuse for now.
	Retryable Input = "retryable"
	// Partial is a batch of which the back end rejects some spans.
	Partial Input = "partial"
	// Filtered is a batch of which a processor drops at least one span.
	Filtered Input = "filtered"
	// Slow is a batch whose delivery takes longer than half a second and less
	// than two: rules that cut calls in the middle, or must not, use it.
	Slow Input = "slow"
	// Stuck is a batch whose delivery does not end before the call is cancelled
	// or its deadline is over.
	Stuck Input = "stuck"
)

// WithInput gives a request that makes the plugin do something that no request
// does with every plugin. One for each [Input].
func WithInput(input Input, request *coltracepb.ExportTraceServiceRequest) Option {
	return optionFunc(func(s *settings) { s.inputs[input] = request })
}

// WithState is [WithInput] for a back end whose state decides and not the batch, such
// as a locked database, a missing table, or a receiver that is down. enter puts the
// back end into a state in which every batch has the outcome of input, and returns
// the function that restores the back end. One for each [Input]; the batch is that
// of WithInput, or else one of the suite's.
//
// The suite calls enter while no other rule runs, and calls restore once, always.
// For [Slow] it calls restore after a second, while the call is in flight. An error
// of either function fails the rule.
func WithState(input Input, enter func() (restore func() error, err error)) Option {
	return optionFunc(func(s *settings) { s.states[input] = enter })
}

// WithReceived tells the suite what the plugin has delivered so far: the span
// ids, as 16 hexadecimal digits, from the back end or a file. It is asked as
// soon as an Export was answered, so that a plugin that answers before it has
// delivered is found out. It must be safe for concurrent use.
func WithReceived(spanIDs func() ([]string, error)) Option {
	return optionFunc(func(s *settings) { s.received = spanIDs })
}

// prompt is how long the suite gives a plugin where the contract gives it two
// seconds.
func (s *settings) prompt() time.Duration { return s.patience / 4 }

// granted are the variables of env that patterns name, as a host grants them.
func (s *settings) granted(patterns []string) map[string]string {
	granted := maps.Clone(s.env)
	maps.DeleteFunc(granted, func(name, _ string) bool { return !declared(patterns, name) })
	return granted
}

// declared tells whether one of patterns names a variable.
func declared(patterns []string, name string) bool {
	_, ok := wire.DeclaredBy(patterns, name)
	return ok
}
