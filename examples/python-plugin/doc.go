// Package pythonplugin holds a plugin in Python and its test. It proves that the
// contract needs no Go: stock grpcio and OpenTelemetry's own messages speak it,
// and the plugin passes the conformance suite and takes real spans from hello.
//
//   - lines.py is a plugin: two functions, and a call of servetrace.plugin.main, which is
//     python/servetrace/plugin.py of this repository;
//   - plugin is the executable that a host starts: it finds the Python to run lines.py;
//   - requirements.txt pins the packages that both need; `make python` installs them.
//
// The module makes the messages of the contract when it is loaded, from a descriptor in
// it. So there is no generator, and any version of protobuf works. A test compares the
// descriptor with proto/servetrace/plugin/v1/plugin.proto, and writes it with -update.
//
// There is no Go code here. Open lines.py first.
package pythonplugin
