package pluginsdk

import "github.com/servetrace/servetrace/internal/wire"

// Version returns the version of this SDK: of the module github.com/servetrace/servetrace
// in the build information, or "unknown". An exporter may name it in the User-Agent of its
// requests. Safe for concurrent use.
func Version() string { return wire.ModuleVersion() }
