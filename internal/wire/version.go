package wire

import "runtime/debug"

// ModuleVersion returns the version of the servetrace module in this program, or "unknown" if the
// build information does not have it. Host and plugin send it to each other.
func ModuleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/servetrace/servetrace" && m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
}
