package servetrace

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrForced is the error of Run after a second signal, joined with the errors of the
// parts that were cut short.
var ErrForced = errors.New("stopped by a second signal")

// signalWindow is the time after the first signal in which further signals are ignored. A
// program such as GNU timeout sends a signal to the process and again to its group.
const signalWindow = 100 * time.Millisecond

// stopSignals reports the signals by which an operator asks the process to stop.
type stopSignals struct {
	asked  chan os.Signal  // receives the first signal
	forced context.Context // ends with the second signal, with the cause ErrForced
	end    func()          // ends the goroutine and waits for it
}

// handleStopSignals starts a goroutine that handles the signals of a channel. Signals within
// signalWindow after the first signal are ignored. After the second signal the goroutine
// calls reset, which must give further signals their default action. The caller must call
// end of the result.
func handleStopSignals(signals <-chan os.Signal, reset func()) stopSignals {
	forced, force := context.WithCancelCause(context.Background())
	ending, ended := make(chan struct{}), make(chan struct{})
	s := stopSignals{asked: make(chan os.Signal, 1), forced: forced, end: func() {
		close(ending)
		<-ended
	}}
	go func() { // ends when end is called, or after the second signal
		defer close(ended)
		var first time.Time
		for {
			select {
			case got := <-signals:
				switch now := time.Now(); {
				case first.IsZero():
					first = now
					s.asked <- got
				case now.Sub(first) >= signalWindow:
					force(ErrForced)
					reset()
					return
				}
			case <-ending:
				return
			}
		}
	}()
	return s
}
