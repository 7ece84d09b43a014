package processors

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
)

// Lengths in hexadecimal digits. A task id ends in its actor's id, which ends
// in its job's.
const (
	jobDigits   = 8
	actorDigits = 32
	taskDigits  = 48
)

// RayContext puts Ray's identity on every span: ray.task_id, ray.actor_id and
// ray.job_id, all read from serve.task_id, and ray.request_id from
// serve.request_id. They are strings, the ids in lower-case hexadecimal.
//
// A span outside of requests has no serve.task_id, or has one that is none of
// 48 such digits: it gets ray.job_id alone, from the host's static context, and
// nothing where the host knows no job. An attribute that is there already is
// overwritten, as in Ray, where the runtime knows better than the span's maker;
// serve.* attributes stay. In the span account it is "raycontext".
func RayContext() pluginsdk.NewProcessor {
	return RayContextConfig{}.constructor()
}

// RayContextConfig configures [RayContext] in a configuration: it has a name only.
type RayContextConfig struct {
	// Name in the span account. Empty: "raycontext".
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

// addRayContext edits each span. The ids are pieces of the same text, so that a span
// costs two small allocations: its task id and its request id.
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

// text is a string attribute, empty if it is absent or of another type.
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
