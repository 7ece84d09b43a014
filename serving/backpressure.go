package serving

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// backpressure is what a client is told for which there is no place in a queue.
type backpressure struct {
	status     int
	retryAfter time.Duration // zero: not told
}

// backpressureStatuses are those allowed, the default first.
var backpressureStatuses = []int{http.StatusServiceUnavailable, http.StatusTooManyRequests}

// eitherOf lists numbers: "503 or 429".
func eitherOf(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, " or ")
}

// WithBackpressure sets what a client is told when the deployment's queue is at
// its limit ([WithMaxQueuedRequests]): the status, 503 or 429, and how long it
// should wait before it tries again, in the header Retry-After, in whole seconds,
// rounded up; zero: no such header. The default is what [Config] says. Of gRPC
// clients it changes nothing: they get RESOURCE_EXHAUSTED. It is Ray's
// BackpressureConfig.
func WithBackpressure(status int, retryAfter time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.pressure = &backpressure{status, retryAfter} }}
}

// check returns every fault. Nil has none.
func (b *backpressure) check() error {
	if b == nil {
		return nil
	}
	var faults []error
	if !slices.Contains(backpressureStatuses, b.status) {
		faults = append(faults, fmt.Errorf("backpressure status %d: want %s", b.status, eitherOf(backpressureStatuses)))
	}
	if b.retryAfter < 0 {
		faults = append(faults, fmt.Errorf("backpressure retry after %v: want zero or more", b.retryAfter))
	}
	return errors.Join(faults...)
}

// tell has err, if it is of a full queue, say what the client is to be told. It
// is called where err is made, before anybody else has it.
func (b backpressure) tell(err error) {
	if full, is := errors.AsType[*QueueFullError](err); is {
		full.StatusCode, full.RetryAfter = b.status, b.retryAfter
	}
}

// retryAfter is the header of that name in a response for err; empty for none.
func retryAfter(err error) string {
	full, is := errors.AsType[*QueueFullError](err)
	if !is || full.RetryAfter <= 0 {
		return ""
	}
	seconds := int64(full.RetryAfter / time.Second)
	if full.RetryAfter%time.Second > 0 {
		seconds++
	}
	return strconv.FormatInt(seconds, 10)
}
