// Package suite says what a benchmark case is, runs cases fairly, and holds the
// results against the claims.
//
// The life of a run:
//
//  1. A Set has cases, each a row of a shape of a suite, and claims about them.
//  2. Run goes through the shapes. Within one, the rows take turns, repeat after
//     repeat, each repeat beginning with another row: a machine that becomes
//     slower meets all of them alike. One such turn of all rows is a round.
//  3. Around each case the gate of package measure sees whether somebody else
//     used the machine. If so the repeat is thrown away and made again; past a
//     bound there is no result at all, but a *measure.BusyError.
//  4. A claim that is a ratio of rows is computed in each round by itself, and
//     the middle of the rounds is what counts, with the rounds as its spread.
//
// What a case does is its own matter: most start this program again as a child
// (Env.Child), so that each begins with a fresh heap.
//
// Open suite.go first, then run.go and results.go; metric.go is the vocabulary.
package suite
