// Package faults holds the plugins against back ends that are down, slow, cut
// connections, refuse, or have the wrong certificate. It has tests only.
//
//  1. startService makes a host in this process with real plugins of bin/plugins
//     and the handlers of the operators' listener.
//  2. The plugin sends to a real Collector with a Toxiproxy in front (broken
//     networks), or to a scripted server (answers that no Collector gives).
//  3. Spans flow; the fault is made, lasts until the books show it, and is
//     mended; then all that waits is delivered.
//  4. The service's books must agree with what the back end has, to the span,
//     and the reason must stand once in the log, in the metrics and in the status.
//
// It measures nothing. Open service_test.go first, then answers_test.go.
package faults
