package pluginsdk

import "github.com/servetrace/servetrace/internal/wire"

// Version returns the version of this SDK. It is the version of the module
// github.com/servetrace/servetrace in the program's build information, or "unknown". An
// exporter may send it in the header User-Agent of its requests. Version is safe for
// concurrent use.
func Version() string { return wire.ModuleVersion() }
