package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// Description is a plugin's answer to Describe, with the limits and the granted
// variables that follow from it.
type Description struct {
	// About is nil for a plain OTLP receiver, which has no Configure, Flush or Shutdown.
	About   *pluginv1.DescribeResponse
	Limits  pipeline.Limits
	Granted map[string]string
	// Withheld are the names of the declared variables that lock-down withholds.
	Withheld []string
}

// limitsOf returns the limits in Describe's answer, or the defaults.
func limitsOf(l *pluginv1.Limits) pipeline.Limits {
	return pipeline.Limits{
		Spans: cmp.Or(int(min(l.GetMaxBatchSpans(), math.MaxInt32)), pipeline.MostBatchSpans), // an int may have only 32 bits
		Bytes: cmp.Or(int(min(l.GetMaxBatchBytes(), math.MaxInt32)), wire.DefaultMaxBatchBytes),
		Calls: cmp.Or(int(min(l.GetMaxConcurrency(), mostConcurrency)), wire.DefaultMaxConcurrency),
	}
}

// mostConcurrency bounds the number of concurrent calls that a plugin may ask for in
// Describe.
const mostConcurrency = 64

func (d Description) reads(name string) bool {
	return wire.DeclaredBy(d.About.GetEnvPatterns(), name) != ""
}

// describe asks the plugin for its description. It returns an error if this host cannot use
// the plugin, or if the plugin declares variables that it cannot get. An attached plugin
// gets no variables.
func describe(ctx context.Context, settings *pluginlist.Settings, p Plan, conn grpc.ClientConnInterface) (Description, error) {
	about, err := pluginv1.NewLifecycleClient(conn).Describe(ctx, &pluginv1.DescribeRequest{HostVersion: wire.ModuleVersion()})
	if wire.Unimplemented(err) {
		d := Description{Limits: limitsOf(nil)}
		if p.Kind == pluginv1.Kind_KIND_PROCESSOR {
			return d, fmt.Errorf("describe: the plugin is %w: %w", errIncompatible, wrongList(pluginv1.Kind_KIND_EXPORTER))
		}
		if p.Config != nil {
			return d, errors.New("describe: the plugin is a plain OTLP receiver, which takes no configuration; remove its configuration, or name another plugin")
		}
		if p.Attached { // a request without spans could disturb other hosts that use the receiver
			return d, nil
		}
		return d, receivesTraces(ctx, conn)
	}
	if err != nil {
		return Description{}, fmt.Errorf("describe: %w", wire.FromStatus(err))
	}
	withoutSecrets(about, p.Redactor)
	d := Description{About: about, Limits: limitsOf(about.GetLimits())}
	kind := cmp.Or(about.GetKind(), pluginv1.Kind_KIND_EXPORTER)
	if p.EitherKind && (kind == pluginv1.Kind_KIND_EXPORTER || kind == pluginv1.Kind_KIND_PROCESSOR) {
		p.Kind = kind
	}
	if kind != p.Kind {
		return d, fmt.Errorf("describe: the plugin is %w: %w", errIncompatible, wrongList(kind))
	}
	if p.Attached {
		return d, nil
	}
	if d.Granted, d.Withheld, err = settings.Grant(p.Name, about.GetEnvPatterns()); err != nil {
		return d, fmt.Errorf("describe: %w", err)
	}
	return d, nil
}

// SdkText returns the name and version of the library that a plugin is built with.
func SdkText(about *pluginv1.DescribeResponse) string {
	return wire.Clip(strings.TrimSpace(about.GetSdk().GetName() + " " + about.GetSdk().GetVersion()))
}

// wrongList returns the error for a plugin in a list for the other kind.
func wrongList(kind pluginv1.Kind) error {
	switch kind {
	case pluginv1.Kind_KIND_EXPORTER:
		return fmt.Errorf("it is an exporter in a list of processors; name it in %s", pluginlist.EnvPlugins)
	case pluginv1.Kind_KIND_PROCESSOR:
		return fmt.Errorf("it is a processor in the list of exporters; name it in %s", pluginlist.EnvProcessors)
	}
	return fmt.Errorf("it is of kind %v, and this host uses exporters and processors only; upgrade the host", kind)
}

// receivesTraces sends a request without spans to a plugin without a Lifecycle service. It
// returns an error if the plugin does not know the call, because then it is no OTLP
// receiver. Other failures show with the first batch.
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

// withoutSecrets redacts credentials in a plugin's description. The plugin may have
// them from its start environment. It leaves the patterns as they are, because they
// must match names.
func withoutSecrets(about *pluginv1.DescribeResponse, r launch.Redactor) {
	about.Name, about.Version, about.Description = r.Text(about.GetName()), r.Text(about.GetVersion()), r.Text(about.GetDescription())
	if sdk := about.GetSdk(); sdk != nil {
		sdk.Name, sdk.Version, sdk.Language = r.Text(sdk.GetName()), r.Text(sdk.GetVersion()), r.Text(sdk.GetLanguage())
	}
}
