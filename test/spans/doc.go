// Package spans proves that the runtime's spans are those of Ray Serve, except for the
// corrections that docs/reference/spans.md explains. Its tests send requests over real
// sockets, record every span, and compare whole trees, with each span's name, kind,
// status, events and attributes with their types.
//
// A test has the name of its row: TestH07FailureMidStream is row H7 of the table of HTTP
// scenarios. docs/internals/acceptance.md lists all rows.
//
//  1. serve starts a server with a recorder in place of the exporter.
//  2. The test sends requests, each with an id of its own.
//  3. check waits until the trace of a request is complete, and compares it with the
//     tables, which the functions of tables_test.go build.
//
// The tables write out every name and do not use package semconv, so that a changed
// constant fails a test.
//
// The package has no code besides this comment. Open tables_test.go first, then
// rig_test.go, then http_test.go.
package spans
