// Package serveload measures what serving a request costs: ours with tracing off,
// at several ratios, and with plugins that are broken, against the same
// application on a bare server.
//
// The life of a case:
//
//  1. A server process of its own is started (RunServer). It runs an application of
//     app.go.
//  2. A load process (RunLoad) opens its connections, and warms the server up.
//  3. Both stand still while the server's CPU time and allocations are read;
//     then comes the load that is measured; then they are read again. The load
//     has every answer by then, so that what was used is divided by exactly the
//     requests it was used for. Only the plugin may still have spans to send.
//     Or two servers take turns in this, and their ratio is what counts: a
//     machine's moods are then the same for both.
//  4. The server closes its books: a row whose spans have not all arrived at the
//     sink is an error where the plugin was not broken.
//
// The servers can be had by hand (program bench, command serve), for a load
// generator that is not ours.
//
// It does not measure the path of a span by itself: package spanpath does. Open
// cases.go first, then app.go, ours.go and load.go.
package serveload
