package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/host/internal/pluginlist"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/stdio"
	"github.com/servetrace/servetrace/internal/wire"
)

// Plan has the command, environment and configuration for one start of a plugin. They
// come from the settings and the files. Requests of the plugin itself are not in it. It
// is made anew for each start.
type Plan struct {
	Name string
	// Path is the executable, or the socket of an attached plugin. This host neither
	// starts nor configures an attached plugin, and the fields below are empty.
	Path     string
	Attached bool
	// trust has the conditions that the executable must meet.
	trust launch.Trust
	// Environ is the environment of the process at its start. grantedAtStart reports
	// whether it includes the variables that the plugin is granted.
	Environ        []string
	grantedAtStart bool
	// Config is the configuration as the operator wrote it, nil for none. configFile is
	// its path. Document is the configuration with its references resolved. Only the
	// plugin gets it, and it must not be shown.
	Config, Document []byte
	configFile       string
	// Secrets are texts that must not be shown: values of references, and of variables
	// that the plugin may get. Redactor redacts them.
	Secrets  []string
	Redactor launch.Redactor
}

// plan returns the plan of an entry. With an error, the plan has the parts that could
// be found.
func (c *Settings) plan(e pluginlist.Entry) (Plan, error) {
	p := Plan{Name: e.Name, Attached: e.Attached}
	var err error
	if p.Path, err = e.Resolve(c.List.PluginDirs); err != nil || p.Attached {
		return p, err
	}
	p.trust = launch.Trust{Digest: []byte(e.Digest), AllowWritable: c.AllowWritable}
	p.Environ = c.List.StartEnviron(e.Name)
	p.configFile = c.List.PluginConfigs[e.Name].File
	if p.Config, p.Document, p.Secrets, err = c.List.Document(e.Name); err != nil {
		err = configurationError{err}
	}
	p.Redactor = launch.NewRedactor(p.Secrets)
	return p, err
}

// missing returns the granted variables that are not in the start environment, as
// "NAME=value". Variables that the operator names are always in it.
func (p Plan) missing(granted map[string]string) []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(granted)) {
		if kv := name + "=" + granted[name]; !slices.Contains(p.Environ, kv) {
			missing = append(missing, kv)
		}
	}
	return missing
}

// startContext bounds the start of a plugin.
func (c *Settings) startContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.StartTimeout, errStartTimeout)
}

// errStartTimeout is the cause of the context of startContext at its deadline. It wraps
// context.DeadlineExceeded for package launch.
var errStartTimeout = fmt.Errorf("start timeout: %w", context.DeadlineExceeded)

// startError adds the limit to an error if a start took too long.
func (c *Settings) startError(start context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(start), errStartTimeout) {
		return err
	}
	return fmt.Errorf("%w (%s=%v)", err, EnvStartTimeout, c.StartTimeout)
}

// Check returns the faults of the plugin that its file shows without a start.
func (p Plan) Check() error {
	if p.Attached {
		return launch.CheckSocket(p.Path)
	}
	return launch.Check(p.Path, p.trust)
}

// Peer is a connected plugin: a *launch.Process, or a *launch.Attachment. An attachment
// ends with its connection.
type Peer interface {
	Conn() grpc.ClientConnInterface
	PID() int
	Done() <-chan struct{}
	Exit() string
	// Report returns details of the process's end after Done. It is zero for an
	// attached plugin.
	Report() launch.Report
	// Suppressed returns the number of printed lines so far that were not logged.
	Suppressed() uint64
	// Unprinted returns the number of printed lines so far that did not reach this
	// process's standard output.
	Unprinted() uint64
	Kill(why string)
	Dump(ctx context.Context)
	// Leaving reports whether the plugin takes no more calls. It may still answer its
	// last calls, and then ends by itself.
	Leaving() bool
	Stop(ctx context.Context) error
}

// connector connects to the plugin of a plan. The host uses connect; tests of the
// restart policy replace it.
type connector func(ctx context.Context, c *Settings, p Plan, log *slog.Logger) (Peer, error)

var (
	_ Peer = (*launch.Process)(nil)
	_ Peer = (*launch.Attachment)(nil)
)

// connect starts the plugin, or attaches to it.
func connect(ctx context.Context, c *Settings, p Plan, log *slog.Logger) (Peer, error) {
	if p.Attached {
		attachment, err := launch.Attach(ctx, p.Path)
		if err != nil {
			return nil, err
		}
		return attachment, nil
	}
	process, err := launch.Start(ctx, launch.Command{
		Name:          p.Name,
		Path:          p.Path,
		Digest:        p.trust.Digest,
		AllowWritable: p.trust.AllowWritable,
		Environ:       p.Environ,
		Secrets:       p.Secrets,
		Output:        stdio.Stdout(),
		SocketDirs:    c.List.RuntimeDirs(),
		Log:           log,
	})
	if err != nil {
		return nil, err
	}
	return process, nil
}

// manner has the pauses and the log texts that differ between launched and attached
// plugins.
type manner struct {
	// mostPause is the longest pause between two attempts. After a process was ready
	// for steadyAfter, the pauses begin from the first again. A lost connection is then
	// dialled again at once.
	mostPause, steadyAfter time.Duration
	// hung is the log line for a hung plugin. ended is the first part of the cause of
	// an end.
	hung, ended string
}

var (
	launched = manner{
		mostPause: 30 * time.Second, steadyAfter: 10 * time.Second,
		hung:  "plugin answers neither calls nor a health check: it is killed and started again",
		ended: "plugin ended",
	}
	attached = manner{
		mostPause: 5 * time.Second, steadyAfter: time.Second, // dialling costs little
		hung:  "plugin answers neither calls nor a health check: its connection is closed and dialled again, the process is left alone",
		ended: "connection to the plugin ended",
	}
)

func mannerOf(e pluginlist.Entry) manner {
	if e.Attached {
		return attached
	}
	return launched
}

// Description is a plugin's answer to Describe, with the settings derived from it.
type Description struct {
	// About is nil for a plain OTLP receiver, which cannot be configured, flushed or
	// shut down.
	About   *pluginv1.DescribeResponse
	Limits  pipeline.Limits
	Granted map[string]string
	// Withheld are the declared variables that lock-down keeps from the plugin.
	Withheld []string
}

// limitsOf returns the limits in Describe's answer, or the defaults.
func limitsOf(l *pluginv1.Limits) pipeline.Limits {
	return pipeline.Limits{
		Spans: cmp.Or(int(min(l.GetMaxBatchSpans(), math.MaxInt32)), pipeline.MostBatchSpans), // int may be as small
		Bytes: cmp.Or(int(min(l.GetMaxBatchBytes(), math.MaxInt32)), wire.DefaultMaxBatchBytes),
		Calls: cmp.Or(int(min(l.GetMaxConcurrency(), mostConcurrency)), wire.DefaultMaxConcurrency),
	}
}

// mostConcurrency bounds the number of concurrent calls that a plugin may ask for.
const mostConcurrency = 64

// reads reports whether the plugin declares a variable.
func (d Description) reads(name string) bool {
	_, declared := wire.DeclaredBy(d.About.GetEnvPatterns(), name)
	return declared
}

// describe asks the plugin for its description. It returns an error if this host cannot
// use the plugin, or if the plugin requests more than the host grants. An attached
// plugin was started with its own variables, and is granted none.
func describe(ctx context.Context, list *pluginlist.Settings, p Plan, conn grpc.ClientConnInterface) (Description, error) {
	about, err := pluginv1.NewLifecycleClient(conn).Describe(ctx, &pluginv1.DescribeRequest{HostVersion: version()})
	if wire.Unimplemented(err) {
		d := Description{Limits: limitsOf(nil)}
		if p.Config != nil {
			return d, errors.New("describe: the plugin is a plain OTLP receiver, which takes no configuration; remove its configuration, or name another plugin")
		}
		if p.Attached { // others use it too: it is left alone until there are spans
			return d, nil
		}
		return d, receivesTraces(ctx, conn)
	}
	if err != nil {
		return Description{}, fmt.Errorf("describe: %w", wire.FromStatus(err))
	}
	withoutSecrets(about, p.Redactor)
	d := Description{About: about, Limits: limitsOf(about.GetLimits())}
	switch about.GetKind() {
	case pluginv1.Kind_KIND_EXPORTER, pluginv1.Kind_KIND_UNSPECIFIED:
	default:
		return d, fmt.Errorf("describe: the plugin is %w: of kind %v, and this host uses exporters only; upgrade the host", errIncompatible, about.GetKind())
	}
	if p.Attached {
		return d, nil
	}
	if d.Granted, d.Withheld, err = list.Grant(p.Name, about.GetEnvPatterns()); err != nil {
		return d, fmt.Errorf("describe: %w", err)
	}
	return d, nil
}

// receivesTraces sends a request without spans to a plugin that does not serve
// Lifecycle. If the plugin does not know the call, it is neither a plain OTLP receiver
// nor a plugin. For any other answer, or none in time, the first batch decides.
func receivesTraces(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithTimeout(ctx, HealthTimeout)
	defer cancel()
	_, err := coltracepb.NewTraceServiceClient(conn).Export(ctx, new(coltracepb.ExportTraceServiceRequest))
	if wire.Unimplemented(err) {
		return fmt.Errorf("describe: the plugin is %w: it serves neither %s nor OTLP's TraceService; build it with pluginsdk, or register the TraceService",
			errIncompatible, pluginv1.Lifecycle_ServiceDesc.ServiceName)
	}
	return nil
}

// withoutSecrets redacts credentials in a plugin's description, because the description
// is shown. The plugin knows credentials from its start, by variables that the operator
// names for it. Patterns of variables are not redacted: they contain only names.
func withoutSecrets(about *pluginv1.DescribeResponse, r launch.Redactor) {
	about.Name, about.Version, about.Description = r.Text(about.GetName()), r.Text(about.GetVersion()), r.Text(about.GetDescription())
	if sdk := about.GetSdk(); sdk != nil {
		sdk.Name, sdk.Version, sdk.Language = r.Text(sdk.GetName()), r.Text(sdk.GetVersion()), r.Text(sdk.GetLanguage())
	}
}
