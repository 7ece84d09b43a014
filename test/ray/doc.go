// Package ray holds the runtime's spans against those of real Ray Serve.
// record.py runs Ray Serve and keeps what it did in testdata; the test sends the
// same requests to the same applications, written in Go, and compares span by
// span. What may differ is listed in differences_test.go, with the reason: a
// difference that is not listed fails the test, and so does one that is listed
// and does not appear.
//
// The test needs no Python. `make ray` records anew.
//
// The package has no code beside this comment. Open differences_test.go first,
// then compare_test.go; apps.py and service_test.go are the applications.
package ray
