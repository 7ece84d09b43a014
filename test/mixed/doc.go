// Package mixed sends ten thousand requests of every kind at once, many of which fail in
// some way, and then counts. The access log, the metrics, the spans, and the records of
// user code and of clients must agree exactly, per status. Nothing may be left: no
// goroutine, no slot, no memory, no open span.
//
//	go test -race ./test/mixed                                     # as CI does
//	go test -race ./test/mixed -args -requests 200000 -seed 7      # for longer
//
// The work and the faults of a request depend only on the seed and the request's number,
// so that the same seed tries the same requests. Their timing differs from run to run.
// Nothing is asserted about time.
//
// The package has no code besides this comment. Open mixed_test.go first, then
// plan_test.go, then books_test.go.
package mixed
