// Package datadog tests the datadog plugin against the core of Datadog's own agent: all
// parts of a span arrive in both modes, the resource names its origin, and statistics are
// right under sampling.
//
// Open corpus_test.go for the spans, modes_test.go for the comparison, hits_test.go for the
// statistics.
package datadog
