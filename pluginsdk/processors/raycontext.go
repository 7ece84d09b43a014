package processors

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
)

// Lengths in hexadecimal digits. A task id ends in the actor's id, which ends in the
// job's id.
const (
	jobDigits   = 8
	actorDigits = 32
	taskDigits  = 48
)

// RayContext puts Ray's identity on every span: ray.task_id, ray.actor_id and
// ray.job_id, all read from serve.task_id, and ray.request_id from
// serve.request_id. All are strings, and ids are in lower-case hexadecimal.
//
// A span without a valid serve.task_id, such as a span outside of requests, gets no
// ray.task_id and no ray.actor_id. Its ray.job_id comes from Setup.Context, if the host
// knows a job id. Existing attributes with these keys are overwritten, as in Ray;
// serve.* attributes stay. The name in the delivery accounting is "raycontext".
func RayContext() pluginsdk.NewProcessor {
	return RayContextConfig{}.constructor()
}

// RayContextConfig configures [RayContext] in a plugin's configuration.
type RayContextConfig struct {
	// Name is the name in the delivery accounting. Empty means "raycontext".
	Name string `yaml:"name"`
}

// Validate checks the name.
func (c RayContextConfig) Validate() error {
	var f faults
	f.checkName(c.Name)
	return f.err()
}

func (c RayContextConfig) constructor() pluginsdk.NewProcessor {
	return constructor(kindRayContext, c.Name, func(s pluginsdk.Setup) (func(*pluginsdk.Batch), error) {
		return func(b *pluginsdk.Batch) { addRayContext(b, s.Context.Job) }, c.Validate()
	})
}

// addRayContext edits each span. The ids share the memory of the task id, so a span
// costs two small allocations: the task id and the request id.
func addRayContext(b *pluginsdk.Batch, job string) {
	for span := range b.Spans() {
		if request := text(span, semconv.ServeRequestID); request != "" {
			span.SetAttributes(attribute.String(semconv.RayRequestID, request))
		}
		task := text(span, semconv.ServeTaskID)
		if !isTaskID(task) {
			if job != "" {
				span.SetAttributes(attribute.String(semconv.RayJobID, job))
			}
			continue
		}
		span.SetAttributes(
			attribute.String(semconv.RayTaskID, task),
			attribute.String(semconv.RayActorID, task[taskDigits-actorDigits:]),
			attribute.String(semconv.RayJobID, task[taskDigits-jobDigits:]),
		)
	}
}

// text returns a string attribute, or "" if it is absent or has another type.
func text(span pluginsdk.Span, key attribute.Key) string {
	value, _ := span.Attribute(key)
	if value.Type() != attribute.STRING {
		return ""
	}
	return value.AsString()
}

func isTaskID(s string) bool {
	if len(s) != taskDigits {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
