// Package spans proves that the runtime's spans are those of Ray Serve, but for
// the argued corrections of docs/reference/spans.md: its tests send requests over real
// sockets, record every span, and compare whole trees, with each span's name,
// kind, status, events and attributes with their types.
//
// A test is named for what it proves: TestH07FailureMidStream is row H7 of the
// table of HTTP scenarios. docs/internals/acceptance.md lists them all.
//
// How a test goes: serve starts a server with a recorder in the exporter's
// place, the test sends requests, each under an id of its own, and check waits
// until the trace of one is complete and compares it with what the tables say,
// which is built by the functions of tables_test.go. Those spell every name out
// and use nothing of package semconv: a constant that is changed there is found
// here.
//
// The package has no code beside this comment. Open tables_test.go first, then
// rig_test.go, then http_test.go.
package spans
