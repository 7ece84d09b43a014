package mixed

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
)

// called are the deployments that handlers call: Middle, and Back, which batches
// requests.
type called struct {
	predict *serving.Handle[plan, int]
	stream  *serving.StreamHandle[plan, int]
	batch   *serving.Handle[plan, int]
	tokens  *serving.StreamHandle[plan, int]
	gates   map[string]*serving.Handle[int, int]
}

func (s *service) deployCalled() (middle, back *serving.Deployment) {
	middle = serving.NewDeployment("Middle", nil,
		serving.WithReplicas(middleReplicas), serving.WithMaxOngoingRequests(middleOngoing), serving.WithMaxQueuedRequests(middleQueued))
	back = serving.NewDeployment("Back", nil,
		serving.WithReplicas(backReplicas), serving.WithMaxOngoingRequests(backOngoing))
	s.predict = serving.AddFunction(middle, "predict", func(ctx context.Context, p plan) (int, error) {
		s.witness.entered(ctx, "Middle")
		out, err := s.callBatch(ctx, p)
		if err != nil {
			return 0, err
		}
		return out, p.deep.do(ctx)
	})
	s.stream = serving.AddStream(middle, "stream", func(ctx context.Context, p plan) iter.Seq2[int, error] {
		s.witness.entered(ctx, "Middle")
		return func(yield func(int, error) bool) {
			for i := range 3 {
				if !yield(i, nil) {
					return
				}
			}
			if err := p.deep.do(ctx); err != nil {
				yield(0, err)
			}
		}
	})
	few := []batching.Option{batching.WithMaxBatchSize(4), batching.WithWaitTimeout(2 * time.Millisecond), batching.WithMaxConcurrentBatches(2)}
	s.batch = serving.AddFunction(back, "batch", enteredFirst(s, batching.New("run", s.runBatch, few...).Do))
	streams := batching.NewStream("tokens", s.runStreams, few...)
	s.tokens = serving.AddStream(back, "tokens", func(ctx context.Context, p plan) iter.Seq2[int, error] {
		s.witness.entered(ctx, "Back")
		return streams.Stream(ctx, p)
	})
	s.gates = map[string]*serving.Handle[int, int]{}
	for name, d := range map[string]*serving.Deployment{"Middle": middle, "Back": back} {
		s.gates[name] = serving.AddFunction(d, "gate", func(ctx context.Context, _ int) (int, error) {
			s.witness.entered(ctx, name)
			s.gate.wait()
			return 0, nil
		})
	}
	return middle, back
}

func enteredFirst(s *service, f func(context.Context, plan) (int, error)) func(context.Context, plan) (int, error) {
	return func(ctx context.Context, p plan) (int, error) {
		s.witness.entered(ctx, "Back")
		return f(ctx, p)
	}
}

// inBatch is how a batch ends whose first request says e. One that aborts would
// have others' connections cut, whose clients are not ready for that.
func (e ending) inBatch() ending {
	if e == abort {
		return fail
	}
	return e
}

// runBatch fails where its first request is to fail.
func (s *service) runBatch(ctx context.Context, ins []plan) ([]int, error) {
	s.witness.entered(ctx, "a batch")
	if err := ins[0].deep.inBatch().do(ctx); err != nil {
		return nil, err
	}
	return make([]int, len(ins)), nil
}

func (s *service) runStreams(ctx context.Context, ins []*batching.Request[plan, int]) error {
	s.witness.entered(ctx, "a batch")
	for i := range 3 {
		for _, in := range ins {
			in.Send(i)
		}
	}
	return ins[0].In.deep.inBatch().do(ctx)
}

// make makes the calls of a step.
func (s *service) make(ctx context.Context, what step, p plan) (err error) {
	switch what {
	case call:
		s.witness.calls(ctx, "Middle")
		_, err = s.predict.Call(ctx, p)
	case callMany:
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { // ends with its call
				s.witness.calls(ctx, "Middle")
				// A panic in a goroutine of the user's own would end the program; one
				// of the callee comes as an error.
				_, _ = s.predict.Call(ctx, p)
			})
		}
		all.Wait()
	case batch:
		_, err = s.callBatch(ctx, p)
	case stream, leaveIt:
		s.witness.calls(ctx, "Middle")
		err = follow(s.stream.Stream(ctx, p), what == leaveIt)
	case tokens:
		s.witness.calls(ctx, "Back")
		err = follow(s.tokens.Stream(ctx, p), p.n%2 == 0)
	}
	return err
}

func (s *service) callBatch(ctx context.Context, p plan) (int, error) {
	s.witness.calls(ctx, "Back")
	return s.batch.Call(ctx, p)
}

// follow reads a stream to its end, or leaves it after the first.
func follow(stream iter.Seq2[int, error], leave bool) error {
	for _, err := range stream {
		if err != nil {
			return err
		}
		if leave {
			return nil
		}
	}
	return nil
}
