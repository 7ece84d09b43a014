package spans

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/tracing"
)

// Tracer starts the spans of the families with a provider, and has the provider's
// methods. It is safe for concurrent use.
type Tracer struct {
	*tracing.Provider

	tracer trace.Tracer // nil if the provider is off
	naming naming
	jobID  string
}

// New returns a Tracer for the provider. It does not flush the provider or shut it
// down.
func New(p *tracing.Provider) *Tracer {
	cfg := p.Config()
	t := &Tracer{Provider: p, naming: newNaming(cfg), jobID: cfg.JobID}
	if !p.Enabled() {
		return t
	}
	var schema []trace.TracerOption
	if t.naming.current() {
		schema = append(schema, trace.WithSchemaURL(semconv.SchemaURL))
	}
	t.tracer = p.TracerProvider().Tracer(tracing.ScopeName, schema...)
	return t
}

// NewProxy returns a new identity for a proxy.
func (t *Tracer) NewProxy() *identity.Component { return identity.NewProxy(t.jobID) }

// NewReplica returns a new identity for a replica of the deployment of app.
func (t *Tracer) NewReplica(app, deployment string) *identity.Component {
	return identity.NewReplica(t.jobID, app, deployment)
}
