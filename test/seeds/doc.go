// Package seeds runs all that the documents name from which the project was made: Ray's
// pull request 61230 (S0), Anyscale's tracing guide (S1), the preview of Ray's page on
// traces (S2), and the two pages on tracing of Ray Core (S3, S4). It proves by real runs
// how much of the described system is there. `make seeds` prints the table:
//
//  1. Each row has the words of a seed and the verdict: works, different on purpose, or
//     absent. The last two have a reason.
//  2. A check starts built programs of bin/ as an operator does, with the seed's own
//     file if it has one, sends requests and reads the spans at a receiver.
//  3. If `make ray` has made its environment, the seed's own applications run on real
//     Ray Serve too, and their traces are compared with ours.
//  4. A verdict is printed only if the check has passed.
//
// The package has no code beside this comment. Without the flag -bin the test is skipped,
// because it needs the built programs. Open seeds_test.go, then rows_test.go.
package seeds
