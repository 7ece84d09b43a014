// Package contrib tests package pluginsdk/otelplugin against what others have
// written: exporters, clients and span processors of OpenTelemetry and of
// vendors, unchanged, inside plugin processes that a real host has started.
//
//  1. TestMain makes of the test binary the plugin whose name it was started
//     by, or a service that has plugins.
//  2. A test links the binary under a plugin's name, gives the link to a
//     host.Host, and makes spans with the SDK's own provider.
//  3. It looks at what a local back end got, and at the host's books.
//
// It is a module of its own, so that the product's go.mod stays free of all
// these packages. It imports the product's public packages only, and has no
// code but tests. Open plugins_test.go first.
package contrib
