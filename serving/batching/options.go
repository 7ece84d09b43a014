package batching

import (
	"errors"
	"fmt"
	"time"
)

// The defaults of the options. The first three are Ray Serve's. The last two apply to
// streams, for which Ray Serve has no bounds.
const (
	defaultMaxBatchSize  = 10
	defaultWaitTimeout   = 10 * time.Millisecond
	defaultMaxConcurrent = 1
	defaultBuffer        = 128
	defaultPatience      = 10 * time.Second
)

// Option configures a [Batcher] or [StreamBatcher]. An invalid option makes every
// request fail with an error that describes it.
type Option struct{ apply func(*settings) }

type settings struct {
	maxSize    int
	wait       time.Duration
	concurrent int
	size       any // func([]In) int, or nil
	buffer     int
	patience   time.Duration
}

func newSettings(opts []Option) settings {
	s := settings{
		maxSize:    defaultMaxBatchSize,
		wait:       defaultWaitTimeout,
		concurrent: defaultMaxConcurrent,
		buffer:     defaultBuffer,
		patience:   defaultPatience,
	}
	for _, o := range opts {
		o.apply(&s)
	}
	return s
}

// WithMaxBatchSize sets the maximum size of a batch, 1 or more. The default is 10. The unit
// is requests, unless [WithSizeFunc] sets another unit. If max_ongoing_requests of the
// deployment is lower, no batch is ever full, and each batch waits for the wait timeout. The
// log then has a warning.
func WithMaxBatchSize(n int) Option {
	return Option{func(s *settings) { s.maxSize = n }}
}

// WithWaitTimeout sets the longest time for which the first request of a batch waits for
// more requests, 0 or more. The default is 10 ms. With 0, a batch starts as soon as possible,
// with the requests that arrived while the previous batch ran.
func WithWaitTimeout(d time.Duration) Option {
	return Option{func(s *settings) { s.wait = d }}
}

// WithMaxConcurrentBatches sets the largest number of batches that one replica runs at a
// time, 1 or more. The default is 1. While that many batches run, requests wait, and the
// next batch takes them.
func WithMaxConcurrentBatches(n int) Option {
	return Option{func(s *settings) { s.concurrent = n }}
}

// WithSizeFunc sets the function that returns the size of a batch, in any unit, such as
// tokens or pixels, with or without padding. In must be the batcher's input type. A batch
// takes as many inputs as fit into the maximum size. The input that no longer fits starts
// the next batch. If an input is too large by itself, its request fails with [ErrTooLarge].
//
// f is called with the inputs of the batch so far and the next input: once for each input,
// and again if a request leaves. One goroutine of each replica calls it. f must be quick,
// must not keep the slice, and must not return a smaller size for more inputs.
func WithSizeFunc[In any](f func(items []In) int) Option {
	return Option{func(s *settings) { s.size = f }}
}

// WithBuffer sets the number of outputs that a [StreamBatcher] buffers for the consumer of
// each request, 1 or more. The default is 128.
func WithBuffer(n int) Option {
	return Option{func(s *settings) { s.buffer = n }}
}

// WithPatience sets the total time for which a batch of a [StreamBatcher] waits for one
// consumer while its buffer is full. The default is 10 s. With 0 it does not wait. When the time
// is used up, the stream of this consumer ends with [ErrSlowConsumer]. So slow consumers
// delay a batch of n requests by at most n times this time.
func WithPatience(d time.Duration) Option {
	return Option{func(s *settings) { s.patience = d }}
}

// check returns all errors of the options of the batcher with the name, joined.
func (s *settings) check(name string) error {
	err := errors.Join(
		checkMaxSize(s.maxSize),
		checkWait(s.wait),
		errorIf(s.concurrent < 1, "max concurrent batches %d: want 1 or more", s.concurrent),
		errorIf(s.buffer < 1, "buffer %d: want 1 or more outputs", s.buffer),
		errorIf(s.patience < 0, "patience %v: want 0 or more", s.patience),
		errorIf(name == "", "empty name: want a name for spans and metrics"),
	)
	if err != nil {
		return fmt.Errorf("batcher %q: %w", name, err)
	}
	return nil
}

func checkMaxSize(n int) error {
	return errorIf(n < 1, "max batch size %d: want 1 or more", n)
}

func checkWait(d time.Duration) error {
	return errorIf(d < 0, "wait timeout %v: want 0 or more", d)
}

func errorIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}
