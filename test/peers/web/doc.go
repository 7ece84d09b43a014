// Package web tests the HTTP proxy against clients that we have not written:
// h2spec, Autobahn's cases, EventSource and WebSocket as browsers have them, the package ws, and
// curl. Open web_test.go; the scripts are beside it.
package web
