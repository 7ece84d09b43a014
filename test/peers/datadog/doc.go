// Package datadog holds the tests of the datadog plugin against the core of
// Datadog's own agent: that what a span is arrives in both modes, that the
// resource says who made it, and that statistics are right under sampling.
//
// Open corpus_test.go for the spans, modes_test.go for what is compared,
// hits_test.go for the statistics.
package datadog
