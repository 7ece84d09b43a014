package processors

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
)

// Lengths of Ray's ids, in hexadecimal digits. A task id ends in the id of its actor, and
// an actor id ends in the id of its job.
const (
	jobDigits   = 8
	actorDigits = 32
	taskDigits  = 48
)

// RayContext returns the constructor of a processor that adds Ray's ids to every span. It
// takes ray.task_id, ray.actor_id and ray.job_id from the attribute serve.task_id, and
// ray.request_id from serve.request_id. All are strings. Ids of tasks, actors and jobs
// are in lower-case hexadecimal.
//
// A span without a valid serve.task_id, such as a span outside of requests, gets no
// ray.task_id and no ray.actor_id. Its ray.job_id comes from Setup.Context.Job, unless
// that is empty. The processor overwrites existing attributes with these keys, as Ray
// does. It keeps the serve.* attributes. Its name in the delivery accounting is
// "raycontext".
func RayContext() pluginsdk.NewProcessor {
	return RayContextConfig{}.constructor()
}

// RayContextConfig configures [RayContext] in a plugin's configuration.
type RayContextConfig struct {
	// Name is the processor's name in the delivery accounting, in which the host counts
	// dropped spans. Empty means "raycontext".
	Name string `yaml:"name"`
}

// Validate returns a [*pluginsdk.ConfigError] if Name is invalid.
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

// addRayContext adds Ray's ids to each span of a batch. job is the job id for spans
// without a task id, or empty. The actor id and the job id are parts of the string of the
// task id, so a span costs two small allocations.
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

// text returns the value of a string attribute. It returns "" if the attribute is missing
// or has another type.
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
