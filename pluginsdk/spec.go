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

// Spec declares a plugin. It is a plain value: declare it in a variable and pass it to
// [Main], or to [Run] in a test.
type Spec struct {
	// Name is the plugin's short name: lower-case letters, digits and dashes, beginning
	// with a letter. Required.
	Name string
	// Version is the plugin's version, in any form. If empty, the version of the main module
	// in the build information is used.
	Version string
	// Description is one line about the plugin, which --help and hosts show. It may be
	// empty.
	Description string
	// Env lists the environment variables that the plugin reads. A host sends only these
	// variables, beside a few that every plugin gets (PATH, HOME and the like). An entry is
	// a name ("DD_SITE"), or a prefix and a star ("DD_*"). A prefix has three characters or
	// more and ends in an underscore. Nil means none.
	Env []string
	// EnvAtStart makes the host start the process with the variables of Env, for a library
	// that reads them before main runs. The host then starts the plugin twice: once to ask
	// for its Spec, and once to use it. If false, [Main] sets the variables before the
	// constructors run, which suffices for most libraries.
	EnvAtStart bool
	// Limits bounds the batches and calls that a host sends. The zero value means the host's
	// defaults.
	Limits Limits
	// Processors construct the processors, in the order in which they see each batch. They
	// run before the exporter. Nil means none.
	Processors []NewProcessor
	// Exporter constructs the exporter. If nil, the plugin is a processor plugin, which a
	// host runs before all exporters. Then Processors must have an element.
	Exporter NewExporter
}

// Limits bounds the batches and calls that a host sends to a plugin. A zero field means
// the host's default.
type Limits struct {
	// MaxBatchSpans is the largest number of spans in a batch. The default is 65,536;
	// a host seldom makes batches of more than 2,048.
	MaxBatchSpans int
	// MaxBatchBytes is the largest encoded batch, in bytes. The default is a little less
	// than 4 MiB. This package accepts up to 64 MiB.
	MaxBatchBytes int
	// MaxConcurrency is the largest number of concurrent calls of Export or Process. The
	// default is 4. With 1, a host sends batches one after another.
	MaxConcurrency int
}

// NewExporter constructs the exporter. The SDK calls it once, when the host has sent the
// variables and the configuration. It may read files and create clients. It should not
// wait for the network, because the host holds spans back until it returns. ctx covers
// only the construction. If it returns an error or panics, the host does not use the
// plugin, and shows the text to the operator. Return a [*ConfigError] to name the wrong
// setting, and join several errors with errors.Join.
type NewExporter func(ctx context.Context, s Setup) (Exporter, error)

// NewProcessor constructs a processor. The rules of [NewExporter] apply. The SDK calls
// the constructors in the order of Spec.Processors, before the exporter's constructor.
type NewProcessor func(ctx context.Context, s Setup) (Processor, error)

// Setup is the argument of the constructors. A constructor may keep it and all its
// values.
type Setup struct {
	// Getenv returns the value of a variable that the plugin declared, or of a variable that
	// every plugin has (PATH, HOME, proxies and the like). It returns "" for any other
	// variable. Under [Main], the values are also in the process's environment, for
	// libraries that read it. Getenv is safe for concurrent use.
	Getenv func(string) string
	// Config is the operator's configuration of this plugin, a YAML or JSON document. Nil if
	// there is none. Read it with DecodeConfig, because the SDK refuses a document that no
	// constructor decodes.
	Config []byte
	// Context describes the program from which the spans come.
	Context StaticContext
	// Stdout is for the plugin's output. The host copies it to its own standard output, line
	// by line. Write blocks while the reader of that output is slow, and fails when the
	// reader is gone. Stdout is the log if the host does not share its standard output. It
	// is safe for concurrent use. Context.Terminal reports whether a terminal shows the
	// output. If the plugin was started by hand, Stdout is also a syscall.Conn of the
	// terminal.
	Stdout io.Writer
	// Log writes records of level Info and above to the host's log, under this plugin's
	// name.
	Log *slog.Logger
	// Warn reports a setting that is probably a mistake. The host logs text and uses the
	// plugin. path is a variable's name or a path in the configuration, or empty. Warn has
	// no effect after the constructors have returned. It is safe for concurrent use.
	Warn func(path, text string)

	// readers records the parts of Config that the constructors decode. All constructors of
	// a plugin share it. It is nil in a Setup that a test has made.
	readers *documentReaders
}

// StaticContext describes the program from which the spans come. It does not change while
// the plugin runs. A field is empty if the host does not know the value.
type StaticContext struct {
	// Application, Deployment and Replica name the replica of the serving runtime that the
	// host process runs. They are empty if it runs none or several.
	Application, Deployment, Replica string
	// Node is the address of the host's machine, in the form that Ray uses in file names.
	Node string
	// Job is Ray's job id: 8 hexadecimal digits.
	Job string
	// ServiceName is the service name of the host program, if its environment contains one.
	ServiceName string
	// PluginName is the name of this plugin in the operator's list of plugins.
	PluginName string
	// SamplingRatio is the share of new traces that the host's sampler keeps, above 0 and up
	// to 1. Zero if the host does not know it.
	SamplingRatio float64
	// Terminal reports whether the output on Setup.Stdout appears in a terminal.
	// TerminalColumns is the width of that terminal in characters, read when the plugin was
	// configured. It is 0 if the width is unknown.
	Terminal        bool
	TerminalColumns int
}

// Exporter delivers batches to a back end. It may also implement [Flusher].
type Exporter interface {
	// Export delivers a batch, and blocks until the back end has accepted it. Return nil
	// only then, because the host forgets the batch. Export must return when ctx ends. It
	// may use the batch only until it returns.
	//
	// After an error, the host sends the batch again, to this process or its successor,
	// until the batch is too old. There are three exceptions. [Permanent] ends the retries.
	// [RetryAfter] sets the time of the next attempt. [Partial] means that the back end
	// rejected some spans and accepted all others. If the error wraps a gRPC status, its
	// code decides whether the batch is sent again, as OTLP defines.
	//
	// Up to Limits.MaxConcurrency calls may run at the same time, so Export must be safe for
	// concurrent use. A panic does not end the process, but the batch is not sent again.
	Export(ctx context.Context, b *Batch) error
	// Shutdown releases the exporter's resources. The SDK calls it once, as the last call.
	// All calls of Export have returned by then, except calls that ignore the end of their
	// ctx.
	Shutdown(ctx context.Context) error
}

// Flusher is an [Exporter] with a buffer, such as the buffer of a file, that can be
// written out on demand. Calls of Flush and Export may run at the same time.
type Flusher interface {
	// Flush blocks until the spans of all Export calls that have returned are delivered, or
	// until ctx ends.
	Flush(ctx context.Context) error
}

// Processor sees each batch before the exporter. It may edit the batch: set attributes,
// redact values, drop spans. It may also implement [Named] and [Stopper]. It works in the
// same way whether the exporter is in the same plugin or in other plugins.
type Processor interface {
	// Process edits b in place. After an error, no exporter gets the batch, so that spans
	// never leave half processed. The error decides about a retry as in [Exporter.Export].
	// When the host sends the batch again, it arrives without the earlier edits. Calls may
	// run at the same time, so Process must be safe for concurrent use.
	Process(ctx context.Context, b *Batch) error
}

// Named is a [Processor] with a name for the delivery accounting, in which the host
// counts the spans that each processor drops. A processor without a name is counted by
// its place in the Spec, as "processor-1".
type Named interface {
	// Name returns a short name in printable ASCII without spaces, commas or "=". It must
	// always return the same name. The second processor with the same name is counted as
	// "NAME-2".
	Name() string
}

// Stopper is a [Processor] that has resources to release.
type Stopper interface {
	// Shutdown releases the processor's resources. The SDK calls it once, after the
	// exporter's Shutdown. No call follows.
	Shutdown(ctx context.Context) error
}

// ExportFunc is an [Exporter] that has no resources to release.
type ExportFunc func(ctx context.Context, b *Batch) error

var _ Exporter = ExportFunc(nil)

// Export calls f.
func (f ExportFunc) Export(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Shutdown does nothing.
func (ExportFunc) Shutdown(context.Context) error { return nil }

// ProcessorFunc returns the constructor of a processor that calls f for each batch. f
// obeys the rules of [Processor]. name is the processor's name, see [Named].
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

// isProcessor reports whether the plugin is a processor plugin.
func (s Spec) isProcessor() bool { return s.Exporter == nil }

// kind returns "processor" or "exporter", for the output of --describe.
func (s Spec) kind() string {
	if s.isProcessor() {
		return "processor"
	}
	return "exporter"
}

// listVariable returns the environment variable in which an operator lists plugins of
// this kind for a host.
func (s Spec) listVariable() string {
	if s.isProcessor() {
		return processorVariable
	}
	return exporterVariable
}

// nameForm matches a valid Spec.Name. Hosts refuse other names. The SDK checks the name
// too, so that the plugin's author finds the error before an operator does.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// validate returns an error that joins all mistakes in s, or nil.
func (s Spec) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !nameForm.MatchString(s.Name) {
		fault("name %q: want lower-case letters, digits and dashes, beginning with a letter", s.Name)
	}
	if s.isProcessor() && len(s.Processors) == 0 {
		fault("no exporter and no processors: set Spec.Exporter, or Spec.Processors for a processor plugin")
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

// version returns Spec.Version, or the version in the build information.
func (s Spec) version() string {
	if s.Version != "" {
		return s.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
