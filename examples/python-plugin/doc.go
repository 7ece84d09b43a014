// Package pythonplugin holds a plugin in Python and its test. It proves that the
// contract needs no Go: stock grpcio and OpenTelemetry's own messages speak it,
// and the plugin passes the conformance suite and takes real spans from hello.
//
//   - servetrace_plugin.py is the contract's plugin side, one file to copy;
//   - lines.py is a plugin: two functions, and a call of servetrace_plugin.main;
//   - plugin is the executable that a host starts: it finds the Python to run
//     lines.py with;
//   - requirements.txt pins what both need; `make python` installs it beside them.
//
// The messages of the contract are made when the module is loaded, from the
// descriptor that it carries as text: so there is one file, no generator, and any
// version of protobuf will do. A test holds that text against
// proto/servetrace/plugin/v1/plugin.proto, and writes it anew with -update.
//
// There is no Go code here. Open lines.py first.
package pythonplugin
