// Package sink is the one process that takes what every row of a benchmark
// sends: OTLP over HTTP and over gRPC, and a Datadog agent's API for traces. It
// counts spans by walking the bytes, keeps nothing, and answers at once or after
// a pause.
//
// The life of a sink: Start runs this program again as one (Serve); it listens
// on free ports, prints their addresses as a line of JSON and serves until its
// standard input ends. Whoever measures reads the counts over HTTP.
//
// It costs the same for everybody, but it does cost: it shares the machine with
// what is measured, which is why its CPU time is reported too and counts for
// nobody.
//
// Open serve.go for the process, and sink.go for the other end.
package sink
