package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"runtime/debug"

	"github.com/servetrace/servetrace/internal/wire"
)

// Spec is all that a plugin is. It is a plain value: declare one in a variable
// and hand it to [Main], or to [Run] in a test.
type Spec struct {
	// Name is short: lower-case letters, digits and dashes, beginning with a
	// letter. Required.
	Name string
	// Version is the plugin's own, in any form. Empty: the version of the main
	// module as the Go tool built it.
	Version string
	// Description is one line for people, shown by --help and by hosts.
	Description string
	// Env lists the environment variables that the plugin reads. A host starts
	// it with a small environment and grants only what is named here: a name
	// ("DD_SITE"), or a prefix of three characters or more that ends in an
	// underscore, and a star ("DD_*"). Nil: none.
	Env []string
	// EnvAtStart makes a host put the variables that it grants into the
	// environment that the process starts with, for a library that reads them
	// before main. The host then starts the plugin twice: once to ask what it
	// is, and once to use it. False: [Main] sets them before the constructors
	// run, which is soon enough for most libraries.
	EnvAtStart bool
	// Limits are what one Export call can take. Zero: the host's defaults.
	Limits Limits
	// Processors see each batch in this order, before the exporter. Nil: none.
	Processors []NewProcessor
	// Exporter builds what delivers the batches. Required.
	Exporter NewExporter
}

// Limits are what a plugin can take in one call. A field that is zero means
// the host's default.
type Limits struct {
	// MaxBatchSpans is the most spans in a batch. A host's default is 65,536,
	// and it seldom makes batches of more than 2,048.
	MaxBatchSpans int
	// MaxBatchBytes is the most bytes of an encoded batch. A host's default is
	// a little less than 4 MiB; this package takes up to 64 MiB.
	MaxBatchBytes int
	// MaxConcurrency is the most Export calls at a time. A host's default is
	// four. One makes a host send batches one after another.
	MaxConcurrency int
}

// NewExporter builds the exporter, once, when the host has sent the variables
// and the configuration. It may read files and build clients; it should not
// wait for the network, for the host holds spans back meanwhile. ctx covers
// the construction only. An error means that the plugin cannot be used, and
// the host shows its text to the operator: name the setting by a
// [*ConfigError], and join several with errors.Join.
type NewExporter func(ctx context.Context, s Setup) (Exporter, error)

// NewProcessor builds a processor. It is called as a [NewExporter] is, in the
// order of Spec.Processors, before the exporter's.
type NewProcessor func(ctx context.Context, s Setup) (Processor, error)

// Setup is what a constructor is given.
type Setup struct {
	// Getenv gives the value of a variable that the plugin declared, or one of
	// the few that every plugin has (PATH, HOME, proxies and the like); empty
	// where it is not set. Under Main the values are in the process's
	// environment too, so that libraries that read it work unchanged.
	Getenv func(string) string
	// Config is the operator's configuration for this plugin, a YAML or JSON
	// document; nil where there is none. Read it by DecodeConfig: a document
	// that no constructor has decoded is refused.
	Config []byte
	// Context says where the spans come from.
	Context StaticContext
	// Stdout is for what a plugin prints: the host copies it to its own standard
	// output, line by line. A Write blocks while the reader of that is slow, and
	// fails when it is gone. If the host does not share its standard output, Stdout
	// is the log. Safe for concurrent use. Context says whether a terminal shows it;
	// for a plugin that is run by hand it is a syscall.Conn, which can be asked.
	Stdout io.Writer
	// Log goes to the host's log, with this plugin's name on it, from level
	// Info up.
	Log *slog.Logger
	// Warn tells the operator about a setting that is odd and not fatal; the
	// host logs it and uses the plugin. path is a variable's name or a path in
	// the document, or empty. It does nothing once construction is over.
	Warn func(path, text string)

	// readers is shared by all constructors of a plugin; nil in a test's Setup.
	readers *documentReaders
}

// StaticContext says where the spans come from. It does not change while the
// plugin lives. A field that the host does not know is empty.
type StaticContext struct {
	// Application, Deployment and Replica are those of the serving runtime, of
	// a process that runs one replica only.
	Application, Deployment, Replica string
	// Node is the machine's address, as in Ray's file names.
	Node string
	// Job is Ray's job id: 8 hexadecimal digits.
	Job string
	// ServiceName is that of the host program, if its environment gives one.
	ServiceName string
	// PluginName is the name of this plugin in the host's list.
	PluginName string
	// SamplingRatio is the share of root traces that the host's sampler keeps,
	// above 0 and up to 1. Zero if the host does not know it.
	SamplingRatio float64
	// Terminal reports whether a terminal shows what the plugin prints to Stdout,
	// and TerminalColumns how wide it was when the plugin was configured, in
	// columns; 0 if the host does not know.
	Terminal        bool
	TerminalColumns int
}

// Exporter delivers batches to a back end. What it may also be: a [Flusher].
type Exporter interface {
	// Export delivers a batch and returns when that is done: nil means
	// delivered, for good. Do not queue. ctx ends when the host gives the
	// batch up; return then. The batch is the callee's until it returns.
	//
	// Any error makes the host send the batch again, to this process or its
	// successor, until it is too old, except [Permanent], which ends that;
	// [RetryAfter] says when to come back, and [Partial] that all but some
	// spans were delivered. A gRPC status in the chain keeps its code, and its
	// code says whether it is retried, as OTLP has it.
	//
	// Calls may overlap, up to Limits.MaxConcurrency, so Export must be safe
	// for concurrent use. A panic is recovered, and ends retries for the batch.
	Export(ctx context.Context, b *Batch) error
	// Shutdown releases what the exporter holds. It is called once, after the
	// last Export returned, or was told to and did not. No call follows.
	Shutdown(ctx context.Context) error
}

// Flusher is an [Exporter] that holds back what it was given (a file buffer,
// say) and can deliver it now. Flush may overlap Export.
type Flusher interface {
	// Flush returns when everything of the Export calls that have returned is
	// delivered, or ctx ends.
	Flush(ctx context.Context) error
}

// Processor sees each batch before the exporter does, and may edit it: set
// attributes, redact, drop spans. What it may also be: [Named], [Stopper].
type Processor interface {
	// Process edits b in place. An error means what it means in
	// [Exporter.Export], and the batch goes no further: spans never leave half
	// processed. A batch that is sent again comes as it was, without the edits
	// of the attempt before. Calls may overlap.
	Process(ctx context.Context, b *Batch) error
}

// Named is a [Processor] with a name for the span account: a host counts the spans
// that each processor drops. One without is called "processor-1" by place.
type Named interface {
	// Name is short: printable ASCII without spaces, commas or "=". It never
	// changes. The second processor of a name is called "NAME-2".
	Name() string
}

// Stopper is a [Processor] that has something to release.
type Stopper interface {
	// Shutdown is called once, after the exporter's.
	Shutdown(ctx context.Context) error
}

// ExportFunc is an [Exporter] with nothing to release.
type ExportFunc func(ctx context.Context, b *Batch) error

var _ Exporter = ExportFunc(nil)

// Export calls f.
func (f ExportFunc) Export(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Shutdown does nothing.
func (ExportFunc) Shutdown(context.Context) error { return nil }

// ProcessorFunc makes a processor of a function over batches. name is as in
// [Named].
func ProcessorFunc(name string, f func(ctx context.Context, b *Batch) error) NewProcessor {
	return func(context.Context, Setup) (Processor, error) { return &funcProcessor{name, f}, nil }
}

type funcProcessor struct {
	name    string
	process func(ctx context.Context, b *Batch) error
}

var _ Named = (*funcProcessor)(nil)

func (p *funcProcessor) Name() string                                { return p.name }
func (p *funcProcessor) Process(ctx context.Context, b *Batch) error { return p.process(ctx, b) }

// nameForm is what Spec.Name may be; the contract's, so that a wrong one is
// found by the author and not by an operator.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// validate reports all faults of s at once.
func (s Spec) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !nameForm.MatchString(s.Name) {
		fault("name %q: want lower-case letters, digits and dashes, beginning with a letter", s.Name)
	}
	if s.Exporter == nil {
		fault("no exporter: set Spec.Exporter")
	}
	for i, p := range s.Processors {
		if p == nil {
			fault("processor %d is nil", i+1)
		}
	}
	for _, pattern := range s.Env {
		if !wire.ValidEnvPattern(pattern) {
			fault("variable %q: want a name, or a prefix of three characters or more that ends in an underscore, and a star", pattern)
		}
	}
	for _, limit := range []struct {
		name  string
		value int
	}{
		{"MaxBatchSpans", s.Limits.MaxBatchSpans},
		{"MaxBatchBytes", s.Limits.MaxBatchBytes},
		{"MaxConcurrency", s.Limits.MaxConcurrency},
	} {
		if limit.value < 0 || limit.value > 1<<31-1 {
			fault("limit %s is %d: want 0 (the host's default) to 2147483647", limit.name, limit.value)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("plugin %q: %w", s.Name, errors.Join(faults...))
}

// version is Spec.Version, or what the Go tool knows.
func (s Spec) version() string {
	if s.Version != "" {
		return s.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
