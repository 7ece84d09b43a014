package serving

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// backpressure is the response to a client if its request finds the deployment's queue full.
type backpressure struct {
	status     int
	retryAfter time.Duration // zero: the response has no Retry-After
}

// backpressureStatuses are the allowed values of backpressure.status. The first value is
// the default.
var backpressureStatuses = []int{http.StatusServiceUnavailable, http.StatusTooManyRequests}

// eitherOf joins numbers to a text: "503 or 429".
func eitherOf(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, " or ")
}

// WithBackpressure sets the response to an HTTP client if the deployment's queue is at its
// limit ([WithMaxQueuedRequests]). status is 503 or 429. retryAfter is the time after which
// the client should try again. The response has it in the header Retry-After, in whole
// seconds, rounded up. If it is zero, there is no such header. The defaults are
// [Config.BackpressureStatus] and [Config.BackpressureRetryAfter]. A gRPC client always
// gets RESOURCE_EXHAUSTED. The option corresponds to Ray's BackpressureConfig.
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
