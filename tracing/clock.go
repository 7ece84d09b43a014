package tracing

import "time"

// began is where Clock counts from.
var began = time.Now()

// Clock reads the clock that spans go by. It is monotonic, and one for the process;
// a reading is of use beside another one only. Who measures for himself when a span
// starts or ends gives his reading as At, so that an instant is read once for all
// that begins or ends with it.
//
// It costs half of [time.Now], which asks for the time of day too. All spans of a
// trace have that from one reading, where the first of them starts, and so agree
// with each other whatever is done to the time of day.
func Clock() time.Duration { return time.Since(began) }

// time is the time of day, in nanoseconds, of the reading at; 0 for now.
func (s *span) time(at time.Duration) int64 {
	if at == 0 {
		at = Clock()
	}
	return s.epoch + int64(at)
}

// startFirst is for the first span of a trace in this process.
func (s *span) startFirst(at time.Duration) {
	now := time.Now()
	since := now.Sub(began)
	s.epoch = now.UnixNano() - int64(since)
	if at == 0 {
		at = since
	}
	s.is.Start = s.time(at)
}

// startAfter is for one whose parent is of.
func (s *span) startAfter(of *span, at time.Duration) {
	s.epoch = of.epoch
	s.is.Start = s.time(at)
}
