// Package soak watches memory while the sink is down for most of an hour.
//
// A soak runs a program with our host at a steady rate of spans (soak.go), takes
// samples of its memory, and judges them at the end (verdict.go). It is no case
// of a suite: it has findings instead of claims.
//
// Open soak.go first.
package soak
