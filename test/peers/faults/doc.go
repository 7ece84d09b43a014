// Package faults tests the plugins against back ends that are down, slow, cut connections,
// refuse, or have the wrong certificate. It has tests only.
//
//  1. startService makes a host in this process with real plugins of bin/plugins
//     and the handlers of the operators' listener.
//  2. The plugin sends to a real Collector with a Toxiproxy in front (broken
//     networks), or to a scripted server (answers that no Collector gives).
//  3. Spans flow. The fault lasts until the ledgers show it. After its end, all waiting
//     spans are delivered.
//  4. The service's ledgers must agree with the spans of the back end, and the reason must
//     be in the log once, in the metrics and in the status.
//
// It measures nothing. Open service_test.go first, then answers_test.go.
package faults
