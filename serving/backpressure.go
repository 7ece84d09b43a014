package serving

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// backpressure is the response to a client if a queue is full.
type backpressure struct {
	status     int
	retryAfter time.Duration // zero: the response has no Retry-After
}

// backpressureStatuses are the allowed statuses, the default first.
var backpressureStatuses = []int{http.StatusServiceUnavailable, http.StatusTooManyRequests}

// eitherOf joins numbers to a text: "503 or 429".
func eitherOf(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, " or ")
}

// WithBackpressure sets the response to a client when the deployment's queue is at
// its limit ([WithMaxQueuedRequests]): the status, 503 or 429, and the time until the
// client should try again, in the header Retry-After, in whole seconds,
// rounded up; zero: no such header. The default is in [Config]. For gRPC
// clients it changes nothing: they get RESOURCE_EXHAUSTED. It is Ray's
// BackpressureConfig.
func WithBackpressure(status int, retryAfter time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.pressure = &backpressure{status, retryAfter} }}
}

// check returns all faults of b. A nil b has no fault.
func (b *backpressure) check() error {
	if b == nil {
		return nil
	}
	var faults faults
	if !slices.Contains(backpressureStatuses, b.status) {
		faults.add("backpressure status %d: want %s", b.status, eitherOf(backpressureStatuses))
	}
	if b.retryAfter < 0 {
		faults.add("backpressure retry after %v: want zero or more", b.retryAfter)
	}
	return errors.Join(faults...)
}
