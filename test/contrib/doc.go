// Package contrib tests package pluginsdk/otelplugin with code of others: exporters,
// clients and span processors of OpenTelemetry and of vendors, unchanged, inside plugin
// processes that a real host has started.
//
//  1. TestMain makes the test binary a plugin or a service, by the name under which it was
//     started.
//  2. A test links the binary under a plugin's name, gives the link to a host.Host, and
//     makes spans with the SDK's own provider.
//  3. It compares the spans of a local back end and the ledgers of the host.
//
// It is a module of its own, so that the product's go.mod stays free of all these packages.
// It imports the product's public packages only, and has no code but tests. Open
// plugins_test.go first.
package contrib
