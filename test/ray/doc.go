// Package ray compares the runtime's spans with those of real Ray Serve. record.py runs
// Ray Serve and records it in testdata. The test sends the same requests to the same
// applications, written in Go, and compares span by span. differences_test.go lists the
// allowed differences with their reasons. A difference that is not listed fails the test,
// and so does a listed difference that does not appear.
//
// The test needs no Python. `make ray` records anew.
//
// The package has no code besides this comment. Open differences_test.go first, then
// compare_test.go. apps.py and service_test.go are the applications.
package ray
