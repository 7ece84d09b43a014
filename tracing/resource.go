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

// newResource describes the process by detected attributes. The user's attributes override
// them.
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
	// The last value of a key counts.
	return resource.NewSchemaless(append(attrs, user...)...)
}

// defaultServiceName returns the specification's default for a service without a name.
func defaultServiceName() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown_service:go"
	}
	return "unknown_service:" + filepath.Base(path)
}
