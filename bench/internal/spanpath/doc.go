// Package spanpath measures what a span costs on its way from the program that
// made it to a back end: ours, and its peers, in one program, to one sink.
//
// A row is a way (rows.go, rows_ours.go, rows_peers.go), a shape is how spans
// come (shapes.go, drive.go). A case runs a row in a process of its own, which
// is what the figures call "host":
//
//  1. The parent starts this program again as a child (Child) and tells it row,
//     shape and the sink's addresses.
//  2. The child opens the row, allocates 64 MiB that stay alive, so that the
//     collector's pace is that of a real service, and drives the shape for a
//     moment, to warm up; what that has made is delivered before it goes on.
//  3. It reads the clocks, drives the shape, flushes, waits until the sink has
//     everything, and reads the clocks again. So the CPU time is that of making,
//     encoding and delivering the same spans, whoever does what when.
//  4. It holds what was made against what the sink has counted, and against the
//     books of our host. In a shape that may not lose spans one that is missing,
//     or there twice, is an error and no figure.
//
// Nothing is lost because nobody makes more than is taken: the SDK's batch
// processor runs with WithBlocking; with our host, which never blocks, the load
// waits while too many spans wait in its books. A watch reads them every 2 ms,
// which is left in our figures; in the rows of others it ticks too.
//
// Open child.go first.
package spanpath
