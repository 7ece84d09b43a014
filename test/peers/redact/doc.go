// Package redact tests that secrets in spans are gone at real back ends: it puts
// a secret of each kind into each field that a span has, sends the spans through
// a host and a plugin of bin/ whose document has "redact", and looks for every
// one of the secrets in all that the back end has written.
//
//  1. A test starts a peer (package peer) and a host with the plugin.
//  2. It sends a span for each field and kind, with a marker in the secret that
//     is nowhere else.
//  3. When the delivery accounting has an outcome for each span, it looks for each
//     marker in the peer's files as they are. Without "redact" they are there,
//     or the test would show nothing.
//
// It looks for the plugin's own secrets too, its headers and keys, in all that
// the host shows: log, status page, metrics, crash reports.
//
// It has no code but tests. Open fields_test.go first.
package redact
