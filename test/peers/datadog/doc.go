// Package datadog holds the tests of the datadog plugin against the core of
// Datadog's own agent: that each row of the table in docs/datadog.md is so, in
// both modes and both protocols, and that they differ in nothing else.
//
// Open corpus_test.go for the spans, modes_test.go for what is compared.
package datadog
