// Package mixed sends ten thousand requests of every kind at once, many of which
// go wrong in some way, and then counts: the access log, the metrics, the spans,
// what user code saw and what clients saw have to agree exactly, per status, and
// nothing may be left: no goroutine, no slot, no memory, no open span.
//
//	go test -race ./test/mixed                                     # as CI does
//	go test -race ./test/mixed -args -requests 200000 -seed 7      # for longer
//
// What a request does and what is done to it is drawn from the seed and the
// request's number alone, so that the same seed tries the same requests; what a
// machine makes of them is never the same twice. Nothing is asserted about time.
//
// The package has no code beside this comment. Open mixed_test.go first, then
// plan_test.go, then books_test.go.
package mixed
