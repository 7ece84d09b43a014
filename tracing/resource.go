package tracing

import (
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/servetrace/servetrace/semconv"
)

// newResource returns a resource that describes this process. Attributes of the user override
// detected attributes.
func newResource(user []attribute.KeyValue) *resource.Resource {
	attrs := []attribute.KeyValue{
		attribute.String(semconv.TelemetrySDKLanguage, "go"),
		attribute.String(semconv.TelemetrySDKName, "opentelemetry"),
		attribute.String(semconv.TelemetrySDKVersion, sdk.Version()),
		attribute.String(semconv.ServiceName, defaultServiceName()),
		attribute.String(semconv.ServiceInstanceID, uuid.NewString()),
		attribute.Int(semconv.ProcessPID, os.Getpid()),
	}
	if name, err := os.Hostname(); err == nil {
		attrs = append(attrs, attribute.String(semconv.HostName, name))
	}
	// NewSchemaless uses the last value of a key, so the user's attributes come last.
	return resource.NewSchemaless(append(attrs, user...)...)
}

// defaultServiceName returns the value of service.name for a service without a name, as
// OpenTelemetry's specification requires.
func defaultServiceName() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown_service:go"
	}
	return "unknown_service:" + filepath.Base(path)
}
