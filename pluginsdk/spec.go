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
	// Version is the plugin's version, in any form. If empty, it is the version of the main
	// module in the build information.
	Version string
	// Description is one line for people, shown by --help and by hosts. It may be empty.
	Description string
	// Env lists the environment variables that the plugin reads. A host starts it with a
	// small environment and grants only the variables named here. An entry is a name
	// ("DD_SITE"), or a prefix of three characters or more that ends in an underscore, and a
	// star ("DD_*"). Nil means none.
	Env []string
	// EnvAtStart requests the granted variables in the environment that the process starts
	// with, for a library that reads them before main. The host then starts the plugin twice:
	// once for Describe, and once to use it. If false, [Main] sets the variables before the
	// constructors run, which suffices for most libraries.
	EnvAtStart bool
	// Limits bound the Export or Process calls. Zero means the host's defaults.
	Limits Limits
	// Processors construct the processors, in the order in which they see each batch. They
	// run before the exporter. Nil means none.
	Processors []NewProcessor
	// Exporter constructs the exporter. If nil, the plugin is a processor plugin, which a
	// host runs before all exporters. Then Processors must have an element.
	Exporter NewExporter
}

// Limits bound the Export or Process calls of a plugin. A zero field means the host's
// default.
type Limits struct {
	// MaxBatchSpans is the largest number of spans in a batch. The default is 65,536;
	// a host seldom makes batches of more than 2,048.
	MaxBatchSpans int
	// MaxBatchBytes is the largest encoded batch, in bytes. The default is a little less
	// than 4 MiB. This package accepts up to 64 MiB.
	MaxBatchBytes int
	// MaxConcurrency is the largest number of concurrent calls. The default is 4. With 1, a
	// host sends batches one after another.
	MaxConcurrency int
}

// NewExporter constructs the exporter. It is called once, when the host has sent the
// variables and the configuration. It may read files and create clients. It should not
// wait for the network, because the host holds back spans meanwhile. ctx covers only the
// construction. An error means that the plugin cannot be used; the host shows its text to
// the operator. Name the setting with a [*ConfigError], and join several errors with
// errors.Join. A panic is an error.
type NewExporter func(ctx context.Context, s Setup) (Exporter, error)

// NewProcessor constructs a processor. It is called like a [NewExporter], in the order of
// Spec.Processors, before the exporter's constructor.
type NewProcessor func(ctx context.Context, s Setup) (Processor, error)

// Setup is the argument of the constructors. Its values may be kept.
type Setup struct {
	// Getenv returns the value of a variable that the plugin declared, or of a variable
	// that every plugin has (PATH, HOME, proxies and the like). It returns "" for any
	// other variable. Under Main the values are also in the process's environment, for
	// libraries that read it. Safe for concurrent use.
	Getenv func(string) string
	// Config is the operator's configuration of this plugin, a YAML or JSON document.
	// Nil if there is none. Read it with DecodeConfig: a document that no constructor
	// decodes is refused.
	Config []byte
	// Context describes the origin of the spans.
	Context StaticContext
	// Stdout is for the plugin's output. The host copies it to its own standard output,
	// line by line. Write blocks while the reader of that output is slow, and fails when
	// the reader is gone. If the host does not share its standard output, Stdout is the
	// log. Safe for concurrent use. Context reports whether a terminal shows the output;
	// if the plugin was started by hand, Stdout is a syscall.Conn of the terminal.
	Stdout io.Writer
	// Log writes to the host's log, under this plugin's name, from level Info up.
	Log *slog.Logger
	// Warn reports a questionable setting that is not fatal. The host logs it and uses
	// the plugin. path is a variable's name or a path in the configuration, or empty.
	// Warn has no effect after construction. Safe for concurrent use.
	Warn func(path, text string)

	// readers is shared by all constructors of a plugin; nil in a test's Setup.
	readers *documentReaders
}

// StaticContext describes the origin of the spans. It does not change while the plugin
// lives. A field is empty if the host does not know it.
type StaticContext struct {
	// Application, Deployment and Replica are names of the serving runtime, set if the
	// host process runs a single replica.
	Application, Deployment, Replica string
	// Node is the machine's address, as in Ray's file names.
	Node string
	// Job is Ray's job id: 8 hexadecimal digits.
	Job string
	// ServiceName is the service name of the host program, if its environment has it.
	ServiceName string
	// PluginName is the name of this plugin in the host's list.
	PluginName string
	// SamplingRatio is the share of root traces that the host's sampler keeps, above 0
	// and up to 1. Zero if the host does not know it.
	SamplingRatio float64
	// Terminal reports whether the output on Stdout appears in a terminal. TerminalColumns
	// is the width of the terminal when the plugin was configured, or 0 if it is unknown.
	Terminal        bool
	TerminalColumns int
}

// Exporter delivers batches to a back end. It may also implement [Flusher].
type Exporter interface {
	// Export delivers a batch and returns afterwards. nil means that the batch is
	// delivered for good, so do not queue. ctx ends when the host gives up the call;
	// return then. The batch belongs to Export until it returns.
	//
	// After an error, the host sends the batch again, to this process or its successor,
	// until the batch is too old. Exceptions: [Permanent] ends the retries, [RetryAfter]
	// sets the time of the next attempt, and [Partial] means that the back end rejected
	// some spans and accepted the rest. A gRPC status in the error chain keeps its code;
	// the code decides about a retry as OTLP defines it.
	//
	// Calls may overlap, up to Limits.MaxConcurrency, so Export must be safe for
	// concurrent use. A panic is recovered and ends the retries of the batch.
	Export(ctx context.Context, b *Batch) error
	// Shutdown releases the exporter's resources. It is called once, after the last
	// Export returned, or did not return although its ctx ended. No call follows.
	Shutdown(ctx context.Context) error
}

// Flusher is an [Exporter] that buffers, for example in a file buffer, and can deliver its
// buffer on demand. Flush may overlap Export.
type Flusher interface {
	// Flush returns when all spans of the Export calls that have returned are delivered,
	// or when ctx ends.
	Flush(ctx context.Context) error
}

// Processor sees each batch before the exporter, and may edit it: set attributes,
// redact, drop spans. It may also implement [Named] and [Stopper]. The exporter is in
// the same plugin, or in other plugins if the Spec has none. For the processor this
// makes no difference.
type Processor interface {
	// Process edits b in place. An error has the meaning that it has in
	// [Exporter.Export], and the batch goes no further: spans never leave half
	// processed. On a retry the batch arrives without the earlier edits. Calls may
	// overlap, so Process must be safe for concurrent use.
	Process(ctx context.Context, b *Batch) error
}

// Named is a [Processor] with a name for the delivery accounting, in which the host counts
// the spans that each processor drops. Without a name, a processor is called
// "processor-1" after its place.
type Named interface {
	// Name returns a short name in printable ASCII without spaces, commas or "=". It must not
	// change. The second processor with the same name is called "NAME-2".
	Name() string
}

// Stopper is a [Processor] that has resources to release.
type Stopper interface {
	// Shutdown releases the processor's resources. It is called once, after the
	// exporter's Shutdown.
	Shutdown(ctx context.Context) error
}

// ExportFunc is an [Exporter] that has no resources to release.
type ExportFunc func(ctx context.Context, b *Batch) error

var _ Exporter = ExportFunc(nil)

// Export calls f.
func (f ExportFunc) Export(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Shutdown does nothing.
func (ExportFunc) Shutdown(context.Context) error { return nil }

// ProcessorFunc returns a constructor of a processor that calls f for each batch. name is
// as in [Named].
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

// kind returns the name of the plugin's kind in the output for people.
func (s Spec) kind() string {
	if s.isProcessor() {
		return "processor"
	}
	return "exporter"
}

// listVariable returns the variable of a host that lists plugins of this kind.
func (s Spec) listVariable() string {
	if s.isProcessor() {
		return processorVariable
	}
	return exporterVariable
}

// nameForm matches a valid Spec.Name. The host has the same rule. The SDK checks it too,
// so that the author finds the error before an operator does.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// validate returns all faults of s, joined.
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
