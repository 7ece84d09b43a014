// Package spancorpus draws finished spans at random, of every shape that the
// OpenTelemetry SDK's types allow, for tests of whatever encodes, carries or maps
// spans. The same seed gives the same spans.
//
// The life of a Generator: New, then any number of calls, each of which draws
// what comes next. Nothing ends it.
//
// It makes no spans through a tracer provider, and so also some that no provider
// would make. Open generator.go.
package spancorpus
