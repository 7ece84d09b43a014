package batching

import (
	"errors"
	"fmt"
	"time"
)

// Ray Serve's defaults, and those of streams, which Ray has no bounds for.
const (
	defaultMaxBatchSize  = 10
	defaultWaitTimeout   = 10 * time.Millisecond
	defaultMaxConcurrent = 1
	defaultBuffer        = 128
	defaultPatience      = 10 * time.Second
)

// Option changes a [Batcher] or [StreamBatcher] as it is built. A wrong one is
// the error of every request, which tells all of them.
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

// WithMaxBatchSize sets how large a batch may be, 1 or more; the default is 10.
// It counts requests, or what the function of [WithSizeFunc] says. A deployment
// whose max_ongoing_requests is below it never fills a batch, so that each waits
// for its time: the log then has a warning.
func WithMaxBatchSize(n int) Option {
	return Option{func(s *settings) { s.maxSize = n }}
}

// WithWaitTimeout sets how long the first request of a batch waits for others,
// 0 or more; the default is 10 ms. With 0 a batch holds what is there when it
// begins: what came while the one before it ran.
func WithWaitTimeout(d time.Duration) Option {
	return Option{func(s *settings) { s.wait = d }}
}

// WithMaxConcurrentBatches sets how many batches one replica runs at a time, 1
// or more; the default is 1. Requests that come while as many run wait, and the
// next batch takes what has gathered.
func WithMaxConcurrentBatches(n int) Option {
	return Option{func(s *settings) { s.concurrent = n }}
}

// WithSizeFunc has f say how large a batch of items is, in whatever counts for
// the function: tokens, nodes, pixels, with padding or without. In is the
// batcher's. A batch is as large as may be without being above the maximum; the
// item that does not fit any more begins the next. One that is too large by
// itself fails with [ErrTooLarge].
//
// f is called with the items of a batch so far and the next one, once for each
// item and again if one leaves, by one goroutine per replica. It must be quick,
// must not keep items, and must not give less for more of them.
func WithSizeFunc[In any](f func(items []In) int) Option {
	return Option{func(s *settings) { s.size = f }}
}

// WithBuffer sets how many outputs a stream keeps for a consumer that is behind,
// 1 or more; the default is 128. It is for a [StreamBatcher].
func WithBuffer(n int) Option {
	return Option{func(s *settings) { s.buffer = n }}
}

// WithPatience sets how long a batch waits for each of its consumers, in all,
// where their buffers are full; the default is 10 s, and 0 means not at all. A
// consumer that has used it up is cut off, with [ErrSlowConsumer]. So slow
// consumers hold up a batch of n requests for at most n times as long. It is
// for a [StreamBatcher].
func WithPatience(d time.Duration) Option {
	return Option{func(s *settings) { s.patience = d }}
}

// check returns every fault of the settings of a batcher with that name.
func (s *settings) check(name string) error {
	err := errors.Join(
		checkMaxSize(s.maxSize),
		checkWait(s.wait),
		fault(s.concurrent < 1, "max concurrent batches %d: want 1 or more", s.concurrent),
		fault(s.buffer < 1, "buffer %d: want 1 or more outputs", s.buffer),
		fault(s.patience < 0, "patience %v: want 0 or more", s.patience),
		fault(name == "", "no name: it stands in spans and metrics"),
	)
	if err != nil {
		return fmt.Errorf("batcher %q: %w", name, err)
	}
	return nil
}

func checkMaxSize(n int) error {
	return fault(n < 1, "max batch size %d: want 1 or more", n)
}

func checkWait(d time.Duration) error {
	return fault(d < 0, "wait timeout %v: want 0 or more", d)
}

func fault(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}
